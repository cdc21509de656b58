"""Text for people: safe to print, as wide as the screen, in tables that fit."""
