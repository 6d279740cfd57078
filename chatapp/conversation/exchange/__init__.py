"""Exchange with other programs: `registry` lists the formats, each is a module, `transcript` is what they share."""
