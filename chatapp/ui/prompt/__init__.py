"""Where a person writes: the text area, its history, drafts, chips for large pastes, attached files, completion."""
