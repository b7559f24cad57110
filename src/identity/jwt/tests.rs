use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::json;
use tempfile::NamedTempFile;

use super::*;
use crate::identity::keys::LEAST_GAP;
use crate::types::Administers;

/// A key of the issuer.
struct Signer(EncodingKey, Algorithm);

impl Signer {
    fn p256() -> Self {
        Self(EncodingKey::from_ec_der(&KeyPair::generate().unwrap().serialize_der()), Algorithm::Es256)
    }

    fn ed25519() -> Self {
        // PKCS #8, version 1, before the secret.
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        Self(EncodingKey::from_ed_der(&[&head[..], &[7; 32]].concat()), Algorithm::EdDsa)
    }

    fn jwk(&self, id: &str) -> Value {
        let jwk = Jwk::from_encoding_key(&self.0, self.1.wire()).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = id.into();
        jwk
    }

    fn token(&self, id: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(self.1.wire()) };
        encode(&header, claims, &self.0).unwrap()
    }
}

fn now() -> u64 {
    jsonwebtoken::get_current_timestamp()
}

fn claims() -> Value {
    json!({"iss": "https://id.example", "aud": ["other", "pointsman"], "sub": "客服-7", "tenant": "acme",
           "exp": now() + 600, "scope": "orders:read pointsman:admin"})
}

fn with(change: &[(&str, Value)]) -> Value {
    let mut claims = claims();
    for (claim, value) in change {
        claims[*claim] = value.clone();
    }
    claims
}

fn without(claim: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(claim);
    claims
}

struct Issuer {
    file: NamedTempFile,
    jwt: Jwt,
}

fn write(file: &NamedTempFile, keys: &[Value]) {
    std::fs::write(file.path(), json!({ "keys": keys }).to_string()).unwrap();
}

fn issuer(keys: &[Value], tenant_claim: Option<&str>) -> Issuer {
    let file = NamedTempFile::new().unwrap();
    write(&file, keys);
    let settings = Settings {
        keys: Source::File(file.path().into()),
        issuer: "https://id.example".into(),
        audience: vec!["pointsman".into()],
        leeway: Duration::from_secs(60),
        algorithms: vec![Algorithm::Es256, Algorithm::EdDsa],
        tenant_claim: tenant_claim.map(str::to_owned),
        refresh: Duration::from_secs(300),
    };
    Issuer { file, jwt: Jwt::load(settings).unwrap() }
}

impl Issuer {
    fn resolve(&self, token: &str) -> Result<Caller, Refused> {
        self.jwt.resolve(token, &Offices::default())
    }
}

#[test]
fn claims_become_name_tenant_scopes_and_office() {
    let (ec, ed) = (Signer::p256(), Signer::ed25519());
    let issuer = issuer(&[ec.jwk("a"), ed.jwk("b")], Some("tenant"));
    let caller = issuer.resolve(&ec.token(Some("a"), &claims())).unwrap();
    assert_eq!((caller.name.as_str(), caller.tenant.as_str()), ("客服-7", "acme"));
    assert!(caller.holds(&Scope("orders:read".into())) && !caller.holds(&Scope("orders:write".into())));
    assert_eq!(caller.administers(), Administers::OwnTenant);
    // The same in the other forms that issuers use.
    let listed =
        with(&[("scope", Value::Null), ("scp", json!(["a:read", "pointsman:operator"])), ("scopes", json!("b c"))]);
    let caller = issuer.resolve(&ed.token(Some("b"), &listed)).unwrap();
    assert!(["a:read", "b", "c"].iter().all(|scope| caller.holds(&Scope((*scope).into()))));
    assert_eq!(caller.administers(), Administers::Everything);
    // A star is a scope like any other here.
    let star = issuer.resolve(&ec.token(Some("a"), &with(&[("scope", json!("*"))]))).unwrap();
    assert!(!star.holds(&Scope("orders:read".into())));
}

#[test]
fn every_subject_is_a_tenant_where_no_claim_names_one() {
    let key = Signer::p256();
    let issuer = issuer(&[key.jwk("a")], None);
    let caller = issuer.resolve(&key.token(None, &without("tenant"))).unwrap();
    assert_eq!((caller.name.as_str(), caller.tenant.as_str()), ("客服-7", "客服-7"));
}

#[test]
fn tokens_of_others_for_others_or_of_another_time_are_refused() {
    let (key, stranger) = (Signer::p256(), Signer::p256());
    let issuer = issuer(&[key.jwk("a")], Some("tenant"));
    let cases = [
        without("exp"),
        without("iss"),
        without("aud"),
        without("sub"),
        without("tenant"),
        with(&[("exp", json!(now() - 61))]),
        with(&[("exp", json!("tomorrow"))]),
        with(&[("nbf", json!(now() + 120))]),
        with(&[("iss", json!("https://id.example.evil"))]),
        with(&[("aud", json!("other"))]),
        with(&[("sub", json!(" "))]),
        with(&[("sub", json!(7))]),
        with(&[("tenant", json!(["acme"]))]),
        with(&[("tenant", json!("x".repeat(300)))]),
    ];
    for claims in cases {
        let refused = issuer.resolve(&key.token(Some("a"), &claims));
        assert_eq!(refused, Err(Refused::UnknownToken), "{claims}");
    }
    assert_eq!(issuer.resolve(&stranger.token(Some("a"), &claims())), Err(Refused::UnknownToken));
    // Within the leeway both ends count.
    assert!(issuer.resolve(&key.token(Some("a"), &with(&[("exp", json!(now() - 30))]))).is_ok());
    assert!(issuer.resolve(&key.token(Some("a"), &with(&[("nbf", json!(now() + 30))]))).is_ok());
}

#[test]
fn only_the_listed_algorithms_with_fitting_keys_count() {
    let (key, ed) = (Signer::p256(), Signer::ed25519());
    let secret = json!({"kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256"});
    let issuer = issuer(&[key.jwk("a"), secret], Some("tenant"));
    let good = key.token(Some("a"), &claims());
    assert!(issuer.resolve(&good).is_ok());
    // Signed with what is public, or with a secret of the set.
    for (id, bytes) in [("a", key.jwk("a")["x"].to_string()), ("s", "secret".to_owned())] {
        let header = Header { kid: Some(id.into()), ..Header::new(jsonwebtoken::Algorithm::HS256) };
        let forged = encode(&header, &claims(), &EncodingKey::from_secret(bytes.as_bytes()).unwrap()).unwrap();
        assert_eq!(issuer.resolve(&forged), Err(Refused::UnknownToken));
    }
    // `{"alg":"none","kid":"a"}`
    let body = good.split('.').nth(1).unwrap();
    for none in [format!("eyJhbGciOiJub25lIiwia2lkIjoiYSJ9.{body}."), format!("eyJhbGciOiJub25lIn0.{body}.x")] {
        assert_eq!(issuer.resolve(&none), Err(Refused::UnknownToken));
    }
    assert_eq!(issuer.resolve(&ed.token(Some("a"), &claims())), Err(Refused::UnknownToken));
    for broken in ["", "..", "a.b.c", &good[..good.len() - 4], &good.replace('.', "")] {
        assert_eq!(issuer.resolve(broken), Err(Refused::UnknownToken), "{broken}");
    }
    // A key that the issuer keeps for something else.
    let mut reserved = key.jwk("a");
    reserved["alg"] = "ES384".into();
    assert!(
        super::super::keys::KeySet::parse(json!({"keys": [reserved]}).to_string().as_bytes())
            .unwrap()
            .find(Some("a"), Algorithm::Es256)
            .is_none()
    );
    let mut sealed = key.jwk("a");
    sealed["use"] = "enc".into();
    assert!(super::super::keys::KeySet::parse(json!({"keys": [sealed]}).to_string().as_bytes()).is_err());
}

#[test]
fn a_token_without_a_key_id_fits_only_where_one_key_can_be_meant() {
    let (one, two) = (Signer::p256(), Signer::p256());
    let issuer = issuer(&[one.jwk("a"), two.jwk("b")], Some("tenant"));
    assert!(issuer.resolve(&one.token(None, &claims())).is_err());
    assert!(issuer.resolve(&two.token(Some("b"), &claims())).is_ok());
    assert!(issuer.resolve(&two.token(Some("a"), &claims())).is_err());
}

#[test]
fn a_set_that_cannot_be_used_takes_no_key_away() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let issuer = issuer(&[old.jwk("a")], Some("tenant"));
    for bad in ["", "{}", "{\"keys\": 7}", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"??\"}]}"] {
        std::fs::write(issuer.file.path(), bad).unwrap();
        assert!(issuer.jwt.keys.reread().is_err(), "{bad}");
        assert!(issuer.resolve(&old.token(Some("a"), &claims())).is_ok());
    }
    write(&issuer.file, &[json!("nonsense"), new.jwk("b")]);
    let next = issuer.jwt.keys.reread().unwrap().unwrap();
    issuer.jwt.keys.replace(next);
    assert!(issuer.resolve(&new.token(Some("b"), &claims())).is_ok());
    assert!(issuer.resolve(&old.token(Some("a"), &claims())).is_err());
}

/// Counts attempts while tokens with unknown keys arrive all the time.
#[tokio::test(start_paused = true)]
async fn unknown_keys_bring_the_next_look_forward_but_never_two_within_a_minute() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let issuer = issuer(&[old.jwk("a")], Some("tenant"));
    let token = new.token(Some("b"), &claims());
    assert!(issuer.resolve(&token).is_err());
    write(&issuer.file, &[old.jwk("a"), new.jwk("b")]);
    let looks = std::cell::Cell::new(0);
    let run = async |time: Duration| {
        // Each run begins its own gap.
        let fresh = issuer.jwt.keep_fresh(|result| {
            result.unwrap();
            looks.set(looks.get() + 1);
        });
        tokio::time::timeout(time, fresh).await.unwrap_err();
    };
    run(LEAST_GAP - Duration::from_secs(1)).await;
    assert_eq!(looks.get(), 0);
    assert!(issuer.resolve(&token).is_err());
    run(LEAST_GAP + Duration::from_secs(1)).await;
    assert_eq!(looks.get(), 1);
    assert!(issuer.resolve(&token).is_ok());
    // Nothing is wanted: the ordinary interval.
    run(Duration::from_secs(299)).await;
    assert_eq!(looks.get(), 1);
    run(Duration::from_secs(601)).await;
    assert_eq!(looks.get(), 3);
    // Wanted again and again: one look a minute.
    let want = async {
        loop {
            assert!(issuer.resolve(&new.token(Some("c"), &claims())).is_err());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = run(Duration::from_secs(185)) => {}
        () = want => {}
    }
    assert_eq!(looks.get(), 6);
}
