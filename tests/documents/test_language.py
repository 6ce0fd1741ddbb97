"""In which language a text is."""

# ruff: noqa: RUF001 - letters of one script look like those of another

import pytest

from antwort.documents.language import language_of

TEXTS = {
    "ar": "يمكن لكل مستخدم تغيير كلمة المرور الخاصة به من صفحة الإعدادات في أي وقت.",
    "bg": "Всеки потребител може да промени паролата си от страницата с настройки и това не изисква помощ.",
    "ca": "Cada usuari pot canviar la seva contrasenya des de la pàgina de configuració, i això no requereix "
    "ajuda dels "
    "administradors.",
    "cs": "Každý uživatel si může změnit heslo na stránce nastavení, ale musí být přihlášen a mít ověřený "
    "e-mail, který "
    "je platný.",
    "da": "Enhver bruger kan ændre sin adgangskode på siden med indstillinger, men det er ikke muligt at gøre det uden "
    "en bekræftet e-mail, og man skal være logget ind.",
    "de": "Jeder Benutzer kann sein Kennwort auf der Seite der Einstellungen ändern, wenn er angemeldet ist.",
    "el": "Κάθε χρήστης μπορεί να αλλάξει τον κωδικό του από τη σελίδα ρυθμίσεων.",
    "en": "Every user can change their password on the settings page, if they are signed in and the server allows it.",
    "es": "Cada usuario puede cambiar su contraseña en la página de ajustes, pero debe haber iniciado la sesión con "
    "un correo que esté verificado.",
    "et": "Iga kasutaja võib oma parooli seadete lehel muuta, kui ta on sisse loginud ja see on lubatud.",
    "fa": "هر کاربر می‌تواند گذرواژهٔ خود را در صفحهٔ تنظیمات تغییر دهد و این کار کمک نمی‌خواهد.",
    "fi": "Jokainen käyttäjä voi vaihtaa salasanansa asetusten sivulla, mutta se ei ole sallittua jos hän ei ole "
    "kirjautunut, ja tämä on tärkeää.",
    "fr": "Chaque utilisateur peut changer son mot de passe sur la page des réglages, mais il doit être connecté.",
    "he": "כל משתמש יכול לשנות את הסיסמה שלו בעמוד ההגדרות.",
    "hr": "Svaki korisnik može promijeniti svoju lozinku na stranici postavki, ali mora biti prijavljen kako "
    "bi to bilo "
    "moguće nakon potvrde.",
    "hu": "Minden felhasználó megváltoztathatja a jelszavát a beállítások oldalán, de ehhez be kell jelentkezni és "
    "nem lehet lejárt a fiók.",
    "hy": "Յուրաքանչյուր օգտատեր կարող է փոխել իր գաղտնաբառը։",
    "id": "Setiap pengguna dapat mengubah kata sandi pada halaman pengaturan, tetapi harus masuk dengan akun "
    "yang telah "
    "diverifikasi.",
    "it": "Ogni utente può cambiare la propria password nella pagina delle impostazioni, ma deve essere collegato con "
    "un indirizzo che è stato verificato.",
    "ja": "すべての利用者は設定ページでパスワードを変更できます。",
    "ko": "모든 사용자는 설정 페이지에서 비밀번호를 바꿀 수 있습니다.",
    "lt": "Kiekvienas naudotojas gali pakeisti savo slaptažodį nustatymų puslapyje, bet jis turi būti prisijungęs ir "
    "tai nėra sudėtinga.",
    "lv": "Katrs lietotājs var mainīt savu paroli iestatījumu lapā, bet viņam ir jābūt pieslēgtam un tas nav grūti.",
    "nl": "Iedere gebruiker kan zijn wachtwoord op de pagina met instellingen wijzigen, maar hij moet zijn aangemeld "
    "en het adres moet kloppen.",
    "no": "Enhver bruker kan endre passordet sitt på siden med innstillinger, men det er ikke mulig å gjøre det uten "
    "en bekreftet e-post, og man må være logget inn.",
    "pl": "Każdy użytkownik może zmienić swoje hasło na stronie ustawień, ale musi być zalogowany, a to nie "
    "jest trudne "
    "i nie wymaga pomocy.",
    "pt": "Cada utilizador pode mudar a sua palavra-passe na página de definições, mas não é possível sem um endereço "
    "que já foi verificado.",
    "ro": "Fiecare utilizator poate schimba parola sa din pagina de setări, dar trebuie să fie autentificat și nu este "
    "greu de făcut.",
    "ru": "Каждый пользователь может изменить свой пароль на странице настроек, если он вошёл в систему, и это не "
    "требует помощи.",
    "sk": "Každý používateľ si môže zmeniť heslo na stránke nastavení, ale musí byť prihlásený, aby to bolo možné, ako "
    "je to podľa pravidiel.",
    "sl": "Vsak uporabnik lahko spremeni svoje geslo na strani z nastavitvami, če je prijavljen, in to ne zahteva "
    "pomoči, saj je tudi to samo za njih.",
    "sv": "Varje användare kan ändra sitt lösenord på sidan med inställningar, men det är inte möjligt att göra det "
    "utan en adress som har bekräftats.",
    "ta": "ஒவ்வொரு பயனரும் தனது கடவுச்சொல்லை மாற்றலாம்.",
    "th": "ผู้ใช้ทุกคนสามารถเปลี่ยนรหัสผ่านของตนได้",
    "tr": "Her kullanıcı parolasını ayarlar sayfasından değiştirebilir, ama bu işlem için bir oturum gerekir ve "
    "e-posta daha önce doğrulanmış olmalıdır.",
    "uk": "Кожен користувач може змінити свій пароль на сторінці налаштувань, якщо він увійшов, і це не потребує "
    "допомоги.",
    "vi": "Mỗi người dùng có thể thay đổi mật khẩu của mình trong trang cài đặt, nhưng phải đăng nhập và được "
    "xác nhận.",
    "zh": "每个用户都可以在设置页面更改自己的密码。",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_few_lines_is_told(language: str) -> None:
    assert language_of(TEXTS[language]) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KX-1259",
        "12.5 | 13.7 | 99",
        "def main():\n    print(sum(range(10)))\n" * 20,
        "हर उपयोगकर्ता अपना पासवर्ड बदल सकता है।",
        "Name | Ort | Betrag\nMeier | Ulm | 12",
    ],
)
def test_nothing_is_said_where_it_cannot_surely_be_told(text: str) -> None:
    assert language_of(text) == ""


def test_a_manual_in_one_language_may_have_names_of_another() -> None:
    names = "the answer of `GET /v1/files` is in `data` "
    assert language_of(f"{TEXTS['ja']} {names}") == "ja"
    assert language_of(f"{TEXTS['ru'] * 2} {names}") == "ru"
    assert language_of(f"{TEXTS['de'] * 3} {names}") == "de"


def test_a_long_text_is_looked_at_in_several_places() -> None:
    preface = TEXTS["en"] + "\n"
    assert language_of(preface * 10 + TEXTS["sv"] * 400) == "sv"
    assert language_of("0123456789 " * 1000 + TEXTS["de"] * 400) == "de"
