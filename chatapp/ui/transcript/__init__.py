"""The transcript: every message of a conversation in one widget, with the heat of doubt over its text.

    transcript = Transcript(id="transcript")                    a ScrollView; takes the keyboard, binds no keys itself
    transcript.set_messages([MessageView(id, role, content, tokens, …), …])     the shown branch, oldest first
    transcript.set_messages(views, at_end=False)                the same without moving the reading position
    transcript.append_tokens(message_id, tokens)                what arrived since the last call (drain at 30 Hz)
    transcript.replace(message_id, view)                        the reply ended, was edited, or gave way to a sibling
    transcript.set_memory(Memory(live_from=(id, char), kept=frozenset({system_id})))      what the model still sees

    transcript.set_think_tags(ThinkTags(open, close))           of the loaded model (`protocol.Loaded`)

    transcript.heat = Heat.ENTROPY; .cycle_heat(); .unit = "bits"; .percentile = True; .ramp = "viridis"
    transcript.refresh_scales(); .scales

    transcript.message_cursor -> id | None; .focused_entry; .focus_message(id)
    transcript.move_message(±1); .first_message(); .last_message()
    transcript.token_cursor -> index | None; .focused_token; .enter_tokens(); .leave_tokens(); .focus_token(id, index)
    transcript.move_token(±1); .move_word(±1); .next_uncertain(±1) -> bool; .pick(rank)
    transcript.toggle_fold(id=None) -> bool; .following; .follow(); .source_of(id)

It posts `Transcript.MessageFocused(message_id)`, `Transcript.TokenFocused(message_id, index | None)`,
`Transcript.PickRequested(message_id, index, rank)` (rank 0: show the alternatives), `Transcript.ScalesChanged`.
The widget knows nothing of files or of the engine.

Inside: `model` (what is shown, tokens ↔ characters), `blocks` (Markdown cut into blocks), `markdown`, `inline`, `code`
(a block styled in place), `wrap` (rows), `layout` (the rows of one message), `entry` (a message, laid out when somebody
looks), `document` (of all), `render`, `palette` (a row as a strip), `select` (mouse), `walk` (token cursor), `widget`.
"""

from chatapp.ui.transcript.blocks import ThinkTags
from chatapp.ui.transcript.model import Memory, MessageView, TokenMap
from chatapp.ui.transcript.widget import Transcript

__all__ = ["Memory", "MessageView", "ThinkTags", "TokenMap", "Transcript"]
