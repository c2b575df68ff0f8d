"""The descriptions that kernwright ships. Every module below this folder is imported and its programs are generated."""
