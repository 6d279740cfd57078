"""Any sequence of changes: what is shown, what is on disk, and the way back by undo agree."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.conversation.tree import View, fold

from .helpers import token


class Changes(RuleBasedStateMachine):
    """A person at work."""

    store: Store
    session: ConversationSession

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store(Path(self.folder.name))

    @initialize()
    def begin(self) -> None:
        self.session = self.store.new("tiny")
        self.session.add_message("user", "first")

    def teardown(self) -> None:
        self.session.close()
        self.folder.cleanup()

    def some(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.session.conversation.messages)))

    def shown(self) -> tuple:
        conversation = self.session.conversation
        return (tuple(m.id for m in conversation.path()), conversation.system, dict(conversation.branches))

    @rule(text=st.sampled_from(["a", "b", "line\nline"]))
    def write(self, text: str) -> None:
        before = self.shown()[0]
        message = self.session.add_message("user", text)
        assert self.shown()[0] == (*before, message.id)

    @rule(data=st.data())
    def regenerate(self, data: st.DataObject) -> None:
        message = self.session.conversation.messages[self.some(data)]
        writer = self.session.begin_reply(parent=message.parent or "", model="tiny")
        writer.append([token("re"), token("ply")])
        new = writer.finish("stop")
        assert self.shown()[0][-1] == new.id
        assert new in self.session.conversation.siblings(message.id)

    @rule(data=st.data(), keep=st.booleans())
    def edit(self, data: st.DataObject, keep: bool) -> None:
        id = self.some(data)
        conversation = self.session.conversation
        on_path, below = conversation.on_path(id), [m.id for m in conversation.children(id)]
        old = self.shown()[0]
        new = self.session.edit(id, "edited", keep_following=keep)
        assert new.id in self.shown()[0]
        if keep and below:
            assert [m.id for m in conversation.children(new.id)] == below
        if keep and below and on_path:
            assert len(self.shown()[0]) >= len(old)
        if not (keep and below):
            assert self.shown()[0][-1] == new.id

    @rule(data=st.data(), exact=st.booleans())
    def show(self, data: st.DataObject, exact: bool) -> None:
        id = self.some(data)
        self.session.set_head(id, exact=exact)
        assert id in self.shown()[0] or id in self.session.conversation.view.hidden
        if exact:
            assert self.session.conversation.head == id

    @rule(data=st.data(), following=st.booleans())
    def delete(self, data: st.DataObject, following: bool) -> None:
        id = self.some(data)
        below = self.session.conversation.descendants(id) if following else [id]
        self.session.delete(id, following=following)
        assert not set(below) & set(self.shown()[0])

    @rule(text=st.sampled_from(["", "Be brief."]))
    def system(self, text: str) -> None:
        self.session.set_system(text)
        assert self.session.conversation.system == text

    @rule(data=st.data())
    def continue_reply(self, data: st.DataObject) -> None:
        base = self.session.conversation.messages[self.some(data)]
        writer = self.session.begin_reply(continues=base.id, model="tiny")
        writer.append([token(" more")])
        message = writer.finish("length")
        assert message.content == base.content + " more"
        assert "".join(t.text for t in self.session.tokens(message.id)) == message.content

    @precondition(lambda self: self.session.conversation.can_undo)
    @rule()
    def undo_and_redo(self) -> None:
        before = self.shown()
        assert self.session.undo()
        assert self.session.redo()
        assert self.shown() == before

    @precondition(lambda self: self.session.conversation.can_undo)
    @rule()
    def undo(self) -> None:
        self.session.undo()

    @precondition(lambda self: self.session.conversation.can_redo)
    @rule()
    def redo(self) -> None:
        self.session.redo()

    @rule()
    def reopen(self) -> None:
        before = self.shown(), self.session.conversation.view, list(self.session.conversation.messages.values())
        self.session.close()
        self.session = self.store.open(self.session.id)
        assert self.session.notices == []
        after = self.shown(), self.session.conversation.view, list(self.session.conversation.messages.values())
        assert after == before

    @invariant()
    def everything_is_reachable(self) -> None:
        if not hasattr(self, "session"):
            return
        conversation = self.session.conversation
        for message in conversation.messages.values():
            assert message in conversation.siblings(message.id)
            if message.id not in conversation.view.hidden:
                assert conversation.path(message.id)[-1] == message
            assert "".join(t.text for t in self.session.tokens(message.id)) in ("", message.content)
        assert self.session.trouble is None


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_an_empty_file_folds_to_an_empty_conversation() -> None:
    conversation = fold([])
    assert conversation.path() == []
    assert conversation.view == View()
