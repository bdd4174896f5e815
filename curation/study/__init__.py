"""Human study of the errors that generated images show (data curation paper, section 5.2).

::

    captioning curate study IMAGES --out FOLDER                       tasks for Label Studio
    captioning curate study IMAGES --answers EXPORT --results FOLDER  table, figures and agreement
"""
