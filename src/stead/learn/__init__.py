"""Learning to place: policies, what they see, how they are rewarded and trained. Needs torch; reached by name only."""
