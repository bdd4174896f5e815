"""Function words of several languages in Latin script, to detect a caption's language."""

FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the a an of in on at with and is are to his her their from by for as while "
        "through near two over up into next that it its other behind some has being there",
        "German": "der die das ein eine einer einem einen und ist sind auf im mit von den dem zu "
        "vor am beim während durch neben für sich auch zwei nicht seine ihre zwischen über",
        "French": "le la les un une des du de et est sont dans sur avec au aux en pour par qui "
        "devant près deux son sa ses leur pendant derrière à côté",
        "Spanish": "el la los las un una unos de del y es está están en con por para al su sus que "
        "junto mientras sobre dos frente se cerca detrás",
        "Italian": "il lo la gli le un una uno di del della e è sono in con su sul sulla per che "
        "nel nella al alla due mentre davanti vicino si suo sua",
        "Portuguese": "o os as um uma de do da dos e é está estão em no na com por para ao seu sua "
        "que dois enquanto perto frente sobre num numa",
        "Dutch": "de het een en is zijn op in met van aan naar voor bij door te die dat twee naast "
        "terwijl hun haar over uit zit staat",
        "Swedish": "en ett och är på i med av till för som det den från vid två sitter står under "
        "genom bredvid sin sina",
        "Polish": "i w na z ze do się jest są przez po od przy obok dwa dwóch który nad pod oraz "
        "która jego jej",
        "Turkish": "bir ve ile bu için olan üzerinde içinde iki da de çok",
        "Indonesian": "yang dan di dengan sebuah seorang dari ke pada sedang untuk dua ini itu "
        "orang dalam atas",
    }.items()
}
