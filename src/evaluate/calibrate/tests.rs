use super::*;

/// A set on which the choice is right where it leads.
fn samples(encoder: Option<&str>) -> Vec<Sample> {
    let sample = |at: usize, origin: Origin| {
        let lead = (at * 7 % 40) as f32 / 10.0;
        let fits = origin == Origin::Row && !at.is_multiple_of(5);
        let right = fits && (at * 13 % 40) as f32 / 10.0 < lead + 1.0;
        let lead = if fits { lead } else { lead / 4.0 };
        let features = Features { margin: lead, coverage: lead / 4.0, fit: 1.0, ..Features::default() };
        Sample {
            set: 0,
            id: format!("row-{at}"),
            origin,
            encoder: encoder.map(str::to_owned),
            features: Some(features),
            before: 0.5,
            right,
            fits,
        }
    };
    (0..200).flat_map(|at| [sample(at, Origin::Row), sample(at, Origin::Twin)]).collect()
}

fn calibrated() -> Calibrated {
    let all = samples(Some("e5")).into_iter().chain(samples(None)).collect();
    Calibrated::from_samples(all, vec!["shop.jsonl".to_owned()])
}

#[test]
fn what_leads_is_trusted_and_equal_input_gives_equal_bytes() {
    let first = calibrated();
    assert_eq!(first.models.iter().map(|m| m.encoder.as_deref()).collect::<Vec<_>>(), [Some("e5"), None]);
    let model = first.models[0].model;
    let sure = |margin: f32| {
        let features = Features { margin, coverage: margin / 4.0, fit: 1.0, ..Features::default() };
        model.probability(&features).get()
    };
    assert!(sure(3.5) > 0.6 && sure(0.0) < 0.2, "{} {}", sure(3.5), sure(0.0));
    let Thresholds { no_tool_below, min_confidence, min_confidence_write } = first.thresholds;
    assert!(0.0 < no_tool_below && no_tool_below <= min_confidence && min_confidence <= min_confidence_write);
    let again = calibrated();
    assert_eq!(first.to_text(), again.to_text());
    assert!(first.rows().eq(again.rows()));
    assert_eq!(first.rows().count(), 800);
}

#[test]
fn every_figure_is_out_of_sample() {
    // A row and its twin are judged by the same model, which saw neither.
    assert_eq!(fold_of("shop-dev-001"), fold_of("shop-dev-001"));
    let folds: BTreeSet<u64> = (0..50).map(|at| fold_of(&format!("row-{at}"))).collect();
    assert_eq!(folds.len() as u64, FOLDS);
    // Labels without any pattern: a model judged on what it saw would claim to know something.
    let mut noise = samples(Some("e5"));
    noise.retain(|sample| sample.origin == Origin::Row);
    for (at, sample) in noise.iter_mut().enumerate() {
        sample.right = Sha256::digest(at.to_be_bytes())[0] % 2 == 0;
        sample.fits = true;
    }
    let judged = Fitted::new(Some("e5".to_owned()), noise).samples;
    assert!(judged.iter().all(|judged| (0.2..0.8).contains(&judged.after)), "{judged:?}");
}

#[test]
fn twins_do_not_outweigh_what_people_ask() {
    let samples = samples(None);
    let weights = weights(&samples);
    let sum = |of: fn(&Sample) -> bool| {
        samples.iter().zip(&weights).filter(|(sample, _)| of(sample)).map(|(_, weight)| weight).sum::<f64>()
    };
    let share = sum(|sample| !sample.fits) / sum(|_| true);
    assert!((share - NO_TOOL_SHARE).abs() < 0.05, "{share}");
    assert_eq!(weights[0], 1.0);
}

#[test]
fn abstaining_is_counted_on_what_was_wanted_and_done() {
    let all = calibrated();
    let judged: Vec<&Judged> = all.models[0].samples.iter().filter(|j| j.sample.origin == Origin::Row).collect();
    let nothing = Abstaining::at(0.0, &judged);
    assert_eq!((nothing.wanted, nothing.done, nothing.precision(), nothing.recall()), (40, 0, None, Some(0.0)));
    let everything = Abstaining::at(1.1, &judged);
    assert_eq!((everything.precision(), everything.recall()), (Some(0.2), Some(1.0)));
    let mut without = judged[0].clone();
    without.sample.features = None;
    assert_eq!(Abstaining::at(0.0, &[&without]).done, 1, "nothing to choose from is no tool at any threshold");
}

#[test]
fn models_are_written_beside_their_encoders() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("e5")).unwrap();
    let manifest = dir.path().join("e5/manifest.toml");
    std::fs::write(&manifest, "# kept\nname = \"e5\"\n").unwrap();
    let all = calibrated();
    let written = all.write(dir.path()).unwrap();
    assert_eq!(written, [manifest.clone(), dir.path().join("words.toml")]);
    let text = std::fs::read_to_string(&manifest).unwrap();
    assert!(text.starts_with("# kept\nname = \"e5\"\n\n[confidence]\n# Fitted to 400 answers"), "{text}");
    let words = WordsManifest::read(dir.path()).unwrap().confidence.unwrap();
    assert_eq!(Model::from_named(&words), Ok(all.models[1].model));
    let words = std::fs::read_to_string(dir.path().join("words.toml")).unwrap();
    all.write(dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), text);
    assert_eq!(std::fs::read_to_string(dir.path().join("words.toml")).unwrap(), words);
    std::fs::remove_file(&manifest).unwrap();
    assert!(all.write(dir.path()).unwrap_err().to_string().contains("manifest.toml"));
}
