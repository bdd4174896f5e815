"""A study with people: which errors do generated pictures show (data curation paper, section 5.2).

::

    python -m curation.study IMAGES                      serve the page to annotators
    python -m curation.study IMAGES --results FOLDER     write the table, figures and agreement
"""
