"""How Markdown looks: which characters get which look. Expectations follow CommonMark 0.31 and GFM."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from chatapp.ui.transcript.layout import MessageLayout
from chatapp.ui.transcript.lines import Line, Look


def rows(source: str, width: int = 60, **options) -> list[Line]:
    layout = MessageLayout(source, width, **options)
    for block in range(layout.blocks):
        layout.settle(block)
    return [layout.line(row) for row in range(layout.height)]


def looks(source: str, width: int = 60) -> dict[int, Look]:
    """Source offset → look."""
    return {
        offset: run.look for line in rows(source, width) for run in line.runs for offset in range(run.start, run.end)
    }


def marked(source: str, width: int = 200) -> str:
    """The source's letters by look: B bold, I italic, X both, S struck, C code, L link, m marker, ``.`` plain."""
    result: list[str] = []
    for _, look in sorted(looks(source, width).items()):
        if look.role in ("marker", "code", "link"):
            result.append({"marker": "m", "code": "C", "link": "L"}[look.role])
        elif look.strike:
            result.append("S")
        else:
            result.append({(False, False): ".", (True, False): "B", (False, True): "I", (True, True): "X"}[look[1:3]])
    return "".join(result)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a **bold** b", "..mmBBBBmm.."),
        ("a *it* b", "..mIIm.."),
        ("_it_ __bold__", "mIIm.mmBBBBmm"),
        ("***both***", "mmmXXXXmmm"),
        ("**a *b* c**", "mmBBmXmBBmm"),
        ("*a **b** c*", "mIImmXmmIIm"),
        ("snake_case_name", "..............."),
        ("5 * 3 * 2", "........."),
        ("2**10 and 3**4", ".mmBBBBBBBBmm."),  # CommonMark: both runs may open and close
        ("**open", "......"),
        ("a** b**", "......."),
        (r"\*not\*", "m....m."),
        ("`code *x*` y", "mCCCCCCCCm.."),
        ("``a`b``", "mmCCCmm"),
        ("`open", "....."),
        ("~~gone~~ ~one~", "mmSSSSmm......"),
        ("[text](http://a.b) x", "mLLLLmmmmmmmmmmmmm.."),
        ("[**b**](u)", "mmmLmmmmmm"),
        ("see http://a.b/c_d_e.", "....LLLLLLLLLLLLLLLL."),
        ("<http://a.b>", "mLLLLLLLLLLm"),
        ("[x] no link", "..........."),
        ("**你好**，", "mmBBmm."),
        ("*a*b*c*", "mIm.mIm"),
    ],
)
def test_inline(source: str, expected: str) -> None:
    assert marked(source) == expected


def reference(source: str) -> list[tuple[str, bool, bool, bool]]:
    """The text of a paragraph as markdown-it-py reads it: character, strong, emphasized, code."""
    result: list[tuple[str, bool, bool, bool]] = []
    strong = emphasized = 0
    for inline in MarkdownIt("commonmark").parse(source):
        for part in inline.children or ():
            strong += {"strong_open": 1, "strong_close": -1}.get(part.type, 0)
            emphasized += {"em_open": 1, "em_close": -1}.get(part.type, 0)
            if part.type in ("text", "code_inline", "text_special"):
                code = part.type == "code_inline"
                result += [(character, bool(strong), bool(emphasized), code) for character in part.content]
    return result


def read_here(source: str) -> list[tuple[str, bool, bool, bool]]:
    return [
        (source[offset], look.bold, look.italic, look.role == "code")
        for offset, look in sorted(looks(source, 400).items())
        if look.role != "marker"
    ]


@given(st.text(alphabet="*_*_*_ab. ,(\\`é", max_size=24).map(lambda text: f"x{text}x"))
@settings(deadline=None, max_examples=600)
def test_emphasis_and_code_are_those_of_a_reference_parser(source: str) -> None:
    assume("` " not in source and " `" not in source)  # code_inline there is stripped of one space at its ends
    assert read_here(source) == reference(source)


def test_emphasis_goes_on_over_a_line_break_but_not_over_a_paragraph() -> None:
    assert looks("**a\nb**")[4].bold
    assert not looks("**a\n\nb**")[5].bold
    assert not looks("- **a\n- b**")[9].bold


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("- one\n* two\n+ three", ["• one", "• two", "• three"]),
        ("1. one\n2) two", ["1. one", "2) two"]),
        ("> quoted\n> > deeper", ["│ quoted", "│ │ deeper"]),
        ("a\n---\nb", ["a", "─" * 60, "b"]),
        ("## Title", ["## Title"]),
        ("#hashtag", ["#hashtag"]),
        ("-dash", ["-dash"]),
        ("a - b", ["a - b"]),
    ],
)
def test_blocks_show_what_they_mean(source: str, shown: list[str]) -> None:
    assert [line.text for line in rows(source)] == shown


def test_headings_are_bold_with_dim_marks() -> None:
    found = looks("# Big\n### Small\ntext")
    assert (found[0].role, found[2].role, found[2].bold) == ("marker", "heading", True)
    assert (found[10].role, found[10].bold) == ("subheading", True)
    assert found[17] == Look()


def test_a_line_under_a_paragraph_makes_it_a_heading() -> None:
    for line in ("===", "---"):
        found = looks(f"Title\n{line}\ntext")
        assert found[0].bold, line
        assert not found[10].bold, line


def test_list_items_hang() -> None:
    shown = [line.text for line in rows("- some words that wrap\n  1. and some more that wrap", 12)]
    assert shown == ["• some words", "  that wrap", "  1. and ", "     some ", "     more ", "     that ", "     wrap"]


def test_quotes_keep_their_bar_on_every_row() -> None:
    assert [line.text for line in rows("> some words that wrap", 12)] == ["│ some words", "│ that wrap"]


def test_code_keeps_its_text_and_takes_syntax_colours() -> None:
    source = "```python\ndef f(*args):\n    return '**'\n```\nafter"
    shown = rows(source)
    assert [line.text for line in shown] == ["```python", "def f(*args):", "    return '**'", "```", "after"]
    assert [line.fill for line in shown] == ["code"] * 4 + [""]
    found = looks(source)
    assert found[source.index("def")].role == "syntax-keyword"
    assert found[source.index("f(")].role == "syntax-name"
    assert found[source.index("'**'") + 1].role == "syntax-string"
    assert found[0].role == found[source.rindex("```")].role == "marker"


@pytest.mark.parametrize("language", ["nosuchlanguage", "", "x" * 500, "../etc", "python {linenos=true}"])
def test_any_language_name_is_taken(language: str) -> None:
    assert rows(f"```{language}\nx = 1\n```", 600)[1].text == "x = 1"


def test_an_open_fence_runs_to_the_end_and_a_longer_one_holds_a_shorter_one() -> None:
    assert [line.fill for line in rows("````\n```\nx\n````\ny")] == ["code"] * 4 + [""]
    assert [line.fill for line in rows("```\nx\n\ny")] == ["code"] * 4


def test_indented_code_is_code_but_an_indented_list_paragraph_is_not() -> None:
    assert [line.fill for line in rows("text\n\n    x * y * z\n\ntext")] == ["", "", "code", "code", ""]
    assert {line.fill for line in rows("- item\n\n    more *text*")} == {""}


def test_tables_are_aligned() -> None:
    source = "| a | long head | c |\n|:--|:-:|--:|\n| x | y | 1 |\n| **b** | `q|r` | 22 |\nafter"
    assert [line.text for line in rows(source)] == [
        "│ a     │ long head │  c │",
        "├───────┼───────────┼────┤",
        "│ x     │     y     │  1 │",
        "│ **b** │   `q|r`   │ 22 │",
        "after",
    ]


def test_tables_with_wide_characters_are_aligned_by_cells() -> None:
    shown = rows("| 你好 | b |\n|--|--|\n| x | 世 |")
    assert len({line.cells for line in shown}) == 1


def test_a_table_without_outer_pipes() -> None:
    assert [line.text for line in rows("a | b\n-|-\n1 | 2")] == [" a │ b ", "───┼───", " 1 │ 2 "]


def test_the_rows_of_a_table_wider_than_the_screen_are_stacks_of_cells_with_their_heads() -> None:
    source = "| a | **Long** b |\n|---|---|\n| " + "word " * 6 + "| x |\n| 你 |\n"
    assert [line.text.rstrip() for line in rows(source, 24)] == [
        "| a | **Long** b |",
        "─" * 24,
        "├ a       word word word",
        "│         word word word",
        "└ Long b  x",
        "├ a       你",
    ]


def test_reasoning_folds_to_one_row() -> None:
    source = "<think>\none two\n\nthree\n</think>\n\nanswer"
    shown = [line.text for line in rows(source, folded=True)]
    assert shown[0].startswith("▸ reasoning")
    assert shown[-1] == "answer"
    assert "one two" not in shown
    assert "one two" in [line.text for line in rows(source)]


def test_reasoning_that_the_prompt_opened_is_found_by_its_end() -> None:
    layout = MessageLayout("thinking\n", 40)
    assert not layout.has_thinking
    layout.grow("thinking\n</think>\n\nanswer")
    assert layout.has_thinking
    assert layout.think_at(0)
    assert not layout.think_at(layout.row_of(len("thinking\n</think>\n\nan")))


def test_wrapping_by_cells() -> None:
    assert [line.text for line in rows("你好世界你好", 5)] == ["你好", "世界", "你好"]
    assert [line.text for line in rows("你好，世界", 5)] == ["你", "好，", "世界"]
    assert [line.text for line in rows("👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧", 5)] == ["👨‍👩‍👧👨‍👩‍👧", "👨‍👩‍👧"]
    assert [line.text for line in rows("e\u0301e\u0301e\u0301e\u0301e\u0301", 4)] == ["e\u0301" * 4, "e\u0301"]
    assert [line.text for line in rows("🇩🇪🇫🇷🇮🇹", 4)] == ["🇩🇪🇫🇷", "🇮🇹"]


def test_closing_punctuation_does_not_begin_a_row() -> None:
    assert not any(
        line.text.startswith("，") for width in range(4, 12) for line in rows("你好，世界，再见，" * 3, width)
    )


def test_windows_line_ends_leave_no_mark() -> None:
    assert [line.text for line in rows("one\r\ntwo\r\n\r\n```\r\nx\r\n```\r\n")] == [
        "one",
        "two",
        "",
        "```",
        "x",
        "```",
    ]
