"""The OpenAI-compatible routes' parts: bodies, tokens, replies and errors in OpenAI's shapes.

Nothing is generated here: a request's size is counted, its timing is predicted, and the text is made up.
"""
