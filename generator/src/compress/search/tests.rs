use super::*;
use std::collections::BTreeMap;

/// Numbers of a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Times of a table; those of fused launches are halved until they are refined.
struct Table {
    times: BTreeMap<Work, u32>,
    refined: BTreeMap<Work, bool>,
}

impl Times for Table {
    fn bound(&self, work: Work) -> TimeBound {
        let Some(&ns) = self.times.get(&work) else {
            return TimeBound::NEVER;
        };
        match work.exit.is_none() || self.refined.contains_key(&work) {
            true => TimeBound { ns, is_exact: true },
            false => TimeBound {
                ns: ns / 2,
                is_exact: false,
            },
        }
    }

    fn least_ns(&self, work: Work) -> u32 {
        let same = |other: &&Work| {
            let exit = |work: &Work| work.exit.map(|fusion| (fusion.exit, fusion.targets));
            (other.form, other.entered, exit(other)) == (work.form, work.entered, exit(&work))
                && (other.layer, other.choice) == (work.layer, work.choice)
        };
        let times = self.times.keys().filter(same);
        times
            .map(|work| self.bound(*work).ns)
            .min()
            .unwrap_or(u32::MAX)
    }

    fn refine(&mut self, work: &[Work]) {
        self.refined.extend(work.iter().map(|&work| (work, true)));
    }
}

fn is_tucker(kind: Kind) -> bool {
    matches!(kind, Kind::NoFirst | Kind::First(_))
}

fn value_of(distinction: Distinction, kind: Kind) -> usize {
    distinction.value(is_tucker(kind), kind == Kind::Dense)
}

/// Up to five layers, some of which can be fused with later ones, in groups of one or two.
fn random_problem(random: &mut Random) -> (Problem, Table) {
    let count = 1 + random.below(5);
    let mut problem = Problem {
        constant: Cost {
            ns: random.below(9) as u64,
            ..Cost::default()
        },
        targets: 1,
        ..Problem::default()
    };
    for _ in 0..count {
        let d1s = random.below(3);
        let [has_no_first, has_other] = [0, 1].map(|_| random.below(2) == 0);
        let mut forms = Vec::new();
        let mut form = |kind| Form {
            kind,
            loss: random.below(12) as u64,
            flops: random.below(7) as u64,
            weight_bytes: random.below(5) as u64,
        };
        forms.push(form(Kind::Dense));
        for d1 in 0..d1s {
            forms.push(form(Kind::First(d1)));
        }
        if has_no_first {
            forms.push(form(Kind::NoFirst));
        }
        if has_other {
            forms.push(form(Kind::Other));
        }
        if random.below(3) == 0 && forms.len() > 1 {
            forms.remove(0);
        }
        problem.layers.push(Layer {
            forms,
            d1s,
            ..Layer::default()
        });
    }
    // A layer whose forms have several values may be in a group, with another layer behind or before it.
    let has_several = |layer: &Layer, distinction: Distinction| {
        let mut forms = layer
            .forms
            .iter()
            .map(|form| value_of(distinction, form.kind));
        let first = forms.next();
        forms.any(|kind| Some(kind) != first)
    };
    for layer in 0..count {
        let all = [
            Distinction::Tucker,
            Distinction::Dense,
            Distinction::TuckerAndDense,
        ];
        let distinction = all[random.below(3)];
        let is_free = problem.layers[layer].group.is_none();
        if !is_free || !has_several(&problem.layers[layer], distinction) {
            continue;
        }
        let group = Some(problem.groups.len());
        let other = random.below(count);
        let mut members = vec![layer];
        if problem.layers[other].group.is_none() && other != layer {
            problem.layers[other].group = group;
            if has_several(&problem.layers[other], distinction) {
                members.push(other);
            }
        }
        problem.layers[layer].group = group;
        members.sort_unstable();
        let mut group = Group {
            distinction,
            layers: members,
            ns: Vec::new(),
        };
        let ns = (0..group.choices()).map(|_| random.below(5) as u64);
        group.ns = ns.collect();
        problem.groups.push(group);
    }
    let mut times = BTreeMap::new();
    // Each layer reads one value, so at most one earlier layer can be fused with it.
    let writer: Vec<usize> = (0..count).map(|layer| random.below(layer + 1)).collect();
    for layer in 0..count {
        let group = problem.layers[layer].group;
        let choices = group.map_or(1, |group| problem.groups[group].choices());
        for choice in 0..choices {
            let exits: Vec<Exit> = (layer + 1..count)
                .filter(|&later| writer[later] == layer && problem.layers[later].d1s > 0)
                .map(|layer| Exit { layer })
                .collect();
            let forms = problem.layers[layer].forms.clone();
            for (form, of_form) in forms.iter().enumerate() {
                for entered in [Targets(0), Targets(1)] {
                    let mut add = |exit, random: &mut Random| {
                        let work = Work {
                            layer,
                            choice,
                            form,
                            entered,
                            exit,
                        };
                        if exit.is_none() || random.below(5) > 0 {
                            times.insert(work, 1 + random.below(20) as u32);
                        }
                    };
                    add(None, random);
                    if is_tucker(of_form.kind) {
                        for (index, exit) in exits.iter().enumerate() {
                            for d1 in 0..problem.layers[exit.layer].d1s {
                                let fusion = Fusion {
                                    exit: index,
                                    d1,
                                    targets: Targets(1),
                                };
                                add(Some(fusion), random);
                            }
                        }
                    }
                }
            }
            problem.layers[layer].exits.push(exits);
        }
    }
    let refined = BTreeMap::new();
    (problem, Table { times, refined })
}

/// All combinations of forms and exits, by their definition.
fn by_brute_force(problem: &Problem, table: &Table, goal: &Goal) -> Option<u64> {
    let count = problem.layers.len();
    let mut best = None;
    let mut forms = vec![0; count];
    loop {
        let kind = |layer: usize| problem.layers[layer].forms[forms[layer]].kind;
        let has_first = |layer: usize| matches!(kind(layer), Kind::First(_));
        let choice = |layer: usize| {
            problem.layers[layer].group.map_or(0, |group| {
                let group = &problem.groups[group];
                group.choice(|member| value_of(group.distinction, kind(member)))
            })
        };
        // For each layer: no exit, or the first of its exits whose layer has a first factor.
        let possible: Vec<Option<usize>> = (0..count)
            .map(|layer| {
                let exits = &problem.layers[layer].exits[choice(layer)];
                let first = exits.iter().position(|exit| has_first(exit.layer));
                first.filter(|_| is_tucker(kind(layer)))
            })
            .collect();
        for taken in 0u32..1 << count {
            let takes = |layer: usize| taken >> layer & 1 == 1;
            if (0..count).any(|layer| takes(layer) && possible[layer].is_none()) {
                continue;
            }
            let target = |layer: usize| {
                let exit = possible[layer].filter(|_| takes(layer))?;
                Some((exit, problem.layers[layer].exits[choice(layer)][exit].layer))
            };
            let mut cost = problem.constant;
            let mut is_possible = true;
            for (layer, &form) in forms.iter().enumerate() {
                let work = Work {
                    layer,
                    choice: choice(layer),
                    form,
                    entered: Targets(u32::from(
                        (0..count)
                            .any(|other| target(other).is_some_and(|(_, target)| target == layer)),
                    )),
                    exit: target(layer).map(|(exit, target)| match kind(target) {
                        Kind::First(d1) => Fusion {
                            exit,
                            d1,
                            targets: Targets(1),
                        },
                        other => panic!("{other:?}"),
                    }),
                };
                match table.times.get(&work) {
                    Some(&ns) => {
                        let form = problem.layers[layer].forms[forms[layer]];
                        cost = cost.plus(form.cost(u64::from(ns)));
                    }
                    None => is_possible = false,
                }
            }
            for group in &problem.groups {
                cost.ns += group.ns[choice(group.layers[0])];
            }
            let mut limits = goal.limits.iter();
            if is_possible && limits.all(|&(resource, limit)| cost.get(resource) <= limit) {
                let value = cost.get(goal.minimise);
                best = Some(best.map_or(value, |best: u64| best.min(value)));
            }
        }
        let Some(layer) = (0..count).find(|&l| forms[l] + 1 < problem.layers[l].forms.len()) else {
            return best;
        };
        forms[layer] += 1;
        forms[..layer].fill(0);
    }
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    let mut random = Random(7);
    let (mut solved, mut unsolved, mut fused, mut grouped) = (0, 0, 0, 0);
    for case in 0..3000 {
        let (problem, mut table) = random_problem(&mut random);
        grouped += usize::from(!problem.groups.is_empty());
        let goals = [
            (Resource::Loss, vec![Resource::Time]),
            (Resource::Time, vec![Resource::Loss]),
            (Resource::Loss, vec![Resource::Flops, Resource::Time]),
            (Resource::Time, vec![]),
            (
                Resource::Loss,
                vec![Resource::WeightBytes, Resource::Flops, Resource::Time],
            ),
        ];
        let (minimise, limited) = goals[random.below(goals.len())].clone();
        let limit = |resource: Resource, random: &mut Random| {
            let layers = problem.layers.len();
            let each = match resource {
                Resource::Time => 16,
                Resource::Loss => 7,
                _ => 5,
            };
            (resource, (layers * (2 + random.below(each))) as u64)
        };
        let goal = Goal {
            minimise,
            limits: limited
                .into_iter()
                .map(|resource| limit(resource, &mut random))
                .collect(),
        };
        let expected = by_brute_force(&problem, &table, &goal);
        let found = Search::new(&problem, &mut table).solve(&goal);
        let value = found.as_ref().ok().map(|found| found.cost.get(minimise));
        assert_eq!(value, expected, "case {case}: {goal:?} {problem:?}");
        let Ok(found) = found else {
            unsolved += 1;
            continue;
        };
        solved += 1;
        fused += usize::from(found.work.iter().any(|work| work.exit.is_some()));
        for &(resource, limit) in &goal.limits {
            assert!(found.cost.get(resource) <= limit, "case {case}");
        }
        let times = found.work.iter().map(|work| u64::from(table.times[work]));
        let ns = times.sum::<u64>() + problem.constant.ns;
        assert!(ns <= found.cost.ns, "case {case}: {found:?}");
    }
    assert!(solved > 900 && unsolved > 400, "{solved} {unsolved}");
    assert!(fused > 200 && grouped > 900, "{fused} {grouped}");
}
