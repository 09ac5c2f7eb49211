"""Priors for prompts without a history: predicted from their text, or shared by those that are alike."""
