"""Small files and folders in the form that mlx-lm reads, written without it."""

import json


def safetensors_bytes(tensors: dict[str, bytes]) -> bytes:
    """A safetensors file of one-dimensional U8 tensors."""
    header, position = {}, 0
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [position, position + len(content)]}
        position += len(content)
    table = json.dumps(header).encode()
    return len(table).to_bytes(8, "little") + table + b"".join(tensors.values())
