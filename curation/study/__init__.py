"""A study with people: which errors do generated pictures show (data curation paper, section 5.2).

::

    captioning curate study IMAGES --out FOLDER                       tasks for Label Studio
    captioning curate study IMAGES --answers EXPORT --results FOLDER  table, figures and agreement
"""
