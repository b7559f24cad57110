//! Latin text that is not English, told by words that English does not have.

use unicode_normalization::UnicodeNormalization;

use super::lexicon;

/// Small words and words of service, without accents; none of them is a common English word.
const LANGUAGES: &[(&[&str], &str)] = &[
    (
        &["fr"],
        "je tu il elle nous vous ils mon ma mes ton votre vos notre le la les un une des du de au aux et est sont ou \
         ne pas que qui quoi quand comment combien pourquoi avec sans chez dans sur cette ce ces cet c'est suis etes \
         ai avez avons j'ai veux voudrais peux pouvez faire annuler commande commander colis livraison livre \
         remboursement rembourser rembourse retourner retour facture adresse merci bonjour salut svp plait s'il \
         acheter achat paiement compte colis mot passe changer modifier suivre ouvrir",
    ),
    (
        &["es"],
        "yo el la los las un una unos unas mi mis tu tus su sus nuestro de del al y o que quien cuando como cuanto \
         donde por para con sin en es esta este estan estoy son soy hay muy pero quiero quisiera puedo puede necesito \
         tengo hacer cancelar pedido paquete envio entrega reembolso devolver devolucion factura direccion gracias \
         hola favor comprar compra pago cuenta contrasena cambiar mas ha han llegado llega dinero",
    ),
    (
        &["de"],
        "ich du er sie wir ihr mein meine meinen meiner dein deine ihre der das den dem des ein eine einen einer und \
         oder ist sind bin nicht kein keine wo wann wie warum wieviel mit ohne bei nach von zu zum zur fur auf aus \
         mochte will kann konnen bitte bestellung bestellen paket lieferung sendung stornieren ruckerstattung \
         erstattung zuruck zuruckgeben rechnung adresse danke hallo kaufen zahlung konto passwort geld noch mir mich \
         wurde haben habe andern",
    ),
    (
        &["it"],
        "io il lo la gli le un uno una mio mia miei mie tuo sua di del della dei al alla da dal che chi quando come \
         quanto dove perche con senza per sono non ho hai vorrei voglio posso puo annullare ordine ordinare pacco \
         spedizione consegna rimborso restituire reso fattura indirizzo grazie ciao buongiorno favore comprare \
         pagamento conto cambiare mi e questo questa soldi",
    ),
    (
        &["pt"],
        "eu o os as um uma meu minha meus minhas seu sua de do da dos das no na nos nas que quem quando como quanto \
         onde por para com sem e esta este sao nao quero queria posso pode preciso tenho fazer cancelar pedido \
         encomenda entrega envio reembolso devolver devolucao fatura endereco obrigado obrigada ola favor comprar \
         compra pagamento conta senha mudar dinheiro chegou",
    ),
    (
        &["nl"],
        "ik jij wij mijn jouw uw de het een en of niet geen waar wanneer hoe waarom met zonder bij naar van voor op \
         zijn ben heb heeft wil kan graag bestelling bestellen pakket levering bezorging annuleren terugbetaling \
         terug retourneren factuur adres bedankt dank hallo kopen betaling rekening wachtwoord geld nog alstublieft",
    ),
];
/// Words of the lists above that English uses as well, or that are names so often that they tell nothing alone.
const SHARED: &str = "de le la les el al das der des un en on an as do no op of van will me mi is was y o e et tu ma mes me il son \
     come con sin pour plus comment sale or adresse hallo favor per conto livre retour factures passe mot die so er \
     al zu da ha han del ai le di mon";

/// Words that are looked at: more tell nothing new.
const MAX_WORDS: usize = 200;

/// Codes of the language, if the text is in one of those above; `None` for English, for texts too short to tell, and
/// for anything else in plain Latin letters.
pub fn codes(text: &str) -> Option<&'static [&'static str]> {
    // An accent may be typed as a letter of its own.
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.take(MAX_WORDS).collect();
    let folded: Vec<String> = words.iter().map(|word| fold(word)).collect();
    if words.iter().filter(|word| is_vietnamese(word)).count() * 4 >= words.len().max(1) {
        return Some(&["vi"]);
    }
    let mut best: Option<(usize, &'static [&'static str])> = None;
    for (codes, list) in LANGUAGES {
        let known = |word: &str| list.split_ascii_whitespace().any(|own| own == word);
        let own = folded.iter().filter(|word| known(word)).count();
        let sure = folded.iter().filter(|word| known(word) && !is_shared(word)).count();
        let accents = words.iter().zip(&folded).filter(|(word, folded)| is_accented(word) && !known(folded)).count();
        let english = folded.iter().filter(|word| !known(word) || is_shared(word)).filter(|word| is_english(word));
        let score = own + accents;
        let told = match folded.len() {
            0 => false,
            1 => sure == 1 && !lexicon::is_english(&folded[0]),
            2 => sure >= 1 && english.count() == 0,
            // A shared word may be either language's: it must not outweigh one that is not.
            _ => sure >= 1 && score >= 2 && score > english.count(),
        };
        if told && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, codes));
        }
    }
    best.map(|(_, codes)| codes).or_else(|| by_accents(&words, &folded))
}

/// Languages that are not listed but write letters English does not have: most words must be theirs.
fn by_accents(words: &[&str], folded: &[String]) -> Option<&'static [&'static str]> {
    let accented = words.iter().filter(|word| is_accented(word)).count();
    let english = folded.iter().filter(|word| is_english(word)).count();
    (accented >= 1 && accented * 3 >= words.len() && accented > english).then_some(&["und"])
}

/// Holds letters that are written in no other language.
fn is_vietnamese(word: &str) -> bool {
    word.chars().any(|c| matches!(c, '\u{1ea0}'..='\u{1ef9}' | 'ơ' | 'ư' | 'Ơ' | 'Ư' | 'đ' | 'Đ'))
}

/// Words with such letters; a capital marks a name.
fn is_accented(word: &str) -> bool {
    !word.is_ascii() && word.starts_with(char::is_lowercase)
}

fn is_shared(word: &str) -> bool {
    SHARED.split_ascii_whitespace().any(|shared| shared == word)
}

/// Words that English texts are made of.
fn is_english(word: &str) -> bool {
    lexicon::english_rank(word).is_some_and(|rank| rank < 2_000) || word.len() > 4 && lexicon::is_english(word)
}

/// Small letters without accents.
fn fold(word: &str) -> String {
    let plain = word.nfd().filter(|c| !unicode_normalization::char::is_combining_mark(*c));
    plain.flat_map(char::to_lowercase).map(|c| if c == 'ı' { 'i' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_with_and_without_accents() {
        let check = |text: &str, expect: &str| assert_eq!(codes(text).map(|codes| codes[0]), Some(expect), "{text}");
        check("où est mon colis", "fr");
        check("ou est mon colis s'il vous plait", "fr");
        check("je voudrais annuler ma commande", "fr");
        check("remboursement svp", "fr");
        check("quiero cancelar mi pedido", "es");
        check("donde esta mi paquete", "es");
        check("wo ist mein Paket", "de");
        check("ich möchte meine Bestellung stornieren", "de");
        check("Rückerstattung bitte", "de");
        check("dove si trova il mio pacco", "it");
        check("onde esta a minha encomenda", "pt");
        check("waar is mijn bestelling", "nl");
        check("đơn hàng của tôi đâu rồi", "vi");
        check("gdzie jest moja przesyłka, proszę", "und");
    }

    #[test]
    fn english_stays_english() {
        for text in [
            "refund?",
            "invoice",
            "cancel",
            "SO",
            "APP",
            "wher is my pakage",
            "i wnat to retrun it its brokn",
            "refnd my ordr",
            "trak",
            "turn on dark mode",
            "book a table at La Tour d'Argent in Paris",
            "play Despacito by Luis Fonsi",
            "I want a café latte and a croissant",
            "show me the results of Real Madrid and El Clasico",
            "translate 'bonjour' to english please",
            "what is the weather in Los Angeles and San Jose",
            "do I die in the war on the road",
            "is my order in transit or not",
            "resend OTP",
            "",
            "?!",
        ] {
            assert_eq!(codes(text), None, "{text}");
        }
    }
}
