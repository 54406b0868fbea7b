"""The rehearsal: every shipped recipe as it ships, offline, out of a hub cache in the layouts that the hub has.

The cache is made anew of small real files (``cache.py``, ``models.py``, ``datasets.py``, ``tokenizer_files.py``,
``texts.py``); ``recipes.py`` says what of each recipe is made smaller, and ``__main__.py`` runs and measures them.
"""
