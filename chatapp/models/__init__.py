"""Models by name: registry, what is downloaded, fetching, fit in memory. Imports neither mlx nor textual."""
