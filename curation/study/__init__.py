"""A study with people: which errors do generated pictures show (data curation paper, section 5.2).

::

    captioning curate study IMAGES                      serve the page to annotators
    captioning curate study IMAGES --results FOLDER     write the table, figures and agreement
"""
