"""Random Markdown for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

FRAGMENTS = [
    *("\n", "\n", "\n\n", " ", "  ", "    ", "\t", "word", "another", "incomprehensibilities" * 3, "a" * 90),
    *("**", "*", "_", "`", "``", "~~", "[text](http://x.y/z)", "[", "](", ")", "http://a.b/c.", "<http://a.b>", "\\*"),
    *("# ", "### ", "- ", "* ", "1. ", "12) ", "- [x] ", "> ", "> > ", "---", "***\n", "===\n", "\n---\n"),
    *("```", "```python\n", "```\n", "~~~\n", "def f(x):\n    return x\n", '"""', "# comment\n", "'"),
    *("| a | b |\n", "|---|:-:|\n", "| 1 | `x|y` |\n", "a | b\n", "-|-\n", "|", "\\|"),
    *("<think>", "</think>", "<think>\n", "</think>\n", "<thi"),
    *(
        "你好",
        "世界，",
        "こんにちは。",
        "한국",
        "👨‍👩‍👧",
        "🇩🇪",
        "e\u0301",
        "❤️",
        "👍🏽",
        "שלום",
        "مرحبا",
        "\u200d",
        "\u0301",
        "—",
        "“q”",
        "\u3000",
    ),
    *("\x1b[2J", "\x1b]52;c;x\x07", "\x9b", "\u202e", "\ud800", "\r\n", "\r", "\x00", "\u2028", "\xa0"),
]

sources = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=6)), max_size=40).map("".join)
widths = st.integers(min_value=4, max_value=60)
