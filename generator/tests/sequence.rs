//! Compares the search for orders with an exhaustive search that is implemented independently.

#[path = "fuzz/random.rs"]
mod random;

use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tdc_generator::cost::fp32_lanes_floor_us;
use tdc_generator::gpu::gpu;
use tdc_generator::sequence::{
    Cost, Order, OrderError, StepInput, TensorNetwork, cheapest_order, parse_network,
};

fn network(text: &str) -> TensorNetwork {
    parse_network("n", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn best(text: &str, cap: Option<u64>) -> Result<Order, OrderError> {
    cheapest_order(&network(text), Cost::Multiplications, cap)
}

/// The order of the operations, as in `((A C) B)`.
fn order_text(text: &str, order: &Order) -> String {
    let network = network(text);
    let mut made: Vec<String> = Vec::new();
    for step in &order.steps {
        let part = |part| match part {
            StepInput::Tensor(index) => network.tensors()[index].name.clone(),
            StepInput::Step(index) => made[index].clone(),
        };
        let joined = format!("({} {})", part(step.left), part(step.right));
        made.push(joined);
    }
    made.pop().unwrap_or_default()
}

/// The network of the paper's figure 5b, with different sizes: the paper gives its sizes in a picture that is lost.
const FIGURE_5B: &str = "A[h:3, s:6, c:8] B[h:7, p:3] C[s:6, k:4, q:3] D[k:4, t:15] -> [h, c, p, k, q, t]; convolve h: same";

#[test]
fn the_papers_example() {
    for (cap, multiplications, order) in [
        (None, 38_016, "(((A C) B) D)"),
        (Some(2_016), 38_016, "(((A C) B) D)"),
        (Some(2_015), 93_708, "((A C) (B D))"),
        (Some(1_200), 185_544, "((A B) (C D))"),
        (Some(1_080), 185_544, "((A B) (C D))"),
    ] {
        let found = best(FIGURE_5B, cap).expect("an order");
        assert_eq!(found.cost, multiplications, "{cap:?}");
        assert_eq!(found.multiplications(), multiplications, "{cap:?}");
        assert_eq!(order_text(FIGURE_5B, &found), order, "{cap:?}");
        assert!(found.largest <= cap.unwrap_or(u64::MAX), "{cap:?}");
    }
    let error = best(FIGURE_5B, Some(1_079)).expect_err("no order");
    assert_eq!(
        error,
        OrderError::Cap {
            cap: 1_079,
            needed: 1_080
        }
    );
    assert_eq!(
        error.to_string(),
        "no order keeps every intermediate within 1079 elements; allow at least 1080"
    );
    // The naive order.
    let every = AllOrders::of(&Plain::of(FIGURE_5B));
    let naive = every.orders.iter().find(|order| order.0 == "(((A B) C) D)");
    assert_eq!(naive.expect("the naive order").1.multiplications, 45_360);
}

/// A CP convolution at stride 1 with `same` padding.
fn cp(s: u32, y: u32, x: u32, t: u32, h: u32, w: u32, rank: u32) -> String {
    format!(
        "U[s:{s}, y:{y}, x:{x}] S[s, r:{rank}] H[y:{h}, r] W[x:{w}, r] T[t:{t}, r] -> V[t, y, x]; convolve y: same; convolve x: same"
    )
}

#[test]
fn cp_layers_contract_the_input_channels_first() {
    for (layer, a_rank) in [
        ([3, 224, 224, 96, 11, 11], 6_071_296),
        ([48, 55, 55, 256, 5, 5], 949_850),
        ([256, 27, 27, 384, 3, 3], 470_934),
        ([192, 13, 13, 384, 3, 3], 98_358),
        ([192, 13, 13, 256, 3, 3], 76_726),
    ] {
        for rank in [1, 2, 4, 8, 16, 64] {
            let [s, y, x, t, h, w] = layer;
            let text = cp(s, y, x, t, h, w, rank);
            let found = best(&text, None).expect("an order");
            assert_eq!(found.cost, u64::from(rank) * a_rank, "{layer:?} {rank}");
            assert_eq!(
                order_text(&text, &found),
                "((((U S) H) W) T)",
                "{layer:?} {rank}"
            );
            // The rank is summed with the last factor, not before.
            let summed: Vec<_> = found.steps.iter().map(|step| step.summed.len()).collect();
            assert_eq!(summed, [1, 0, 0, 1], "{layer:?} {rank}");
        }
    }
}

#[test]
fn a_rank_shared_by_several_factors_is_not_summed_early() {
    // The paper's published code returns costs below these, for orders that compute something else.
    let text = cp(1, 224, 224, 2, 11, 11, 16);
    let found = best(&text, None).expect("an order");
    assert_eq!(found.cost, 12_146_848);
    let last = found.steps.last().expect("a last step");
    assert_eq!(
        last.left,
        StepInput::Tensor(0),
        "the kernel is rebuilt first"
    );
}

#[test]
fn strides_dilations_and_padding_decide_the_length() {
    for (text, length, multiplications) in [
        ("A[x:10] B[x:3] -> [x]; convolve x: same", 10, 30),
        ("A[x:3] B[x:10] -> [x]; convolve x: same", 10, 30),
        ("A[x:10] B[x:3] -> [x] convolve x: same, stride 3", 4, 12),
        ("A[x:10] B[x:3] -> [x]; convolve x: valid", 8, 24),
        ("A[x:10] B[x:3] -> [x]; convolve x: valid, dilation 4", 2, 6),
        ("A[x:10] B[x:3] -> [x]; convolve x: valid, stride 2", 4, 12),
        (
            "A[x:10] B[x:3] -> [x]; convolve x: valid, stride 2, dilation 3",
            2,
            6,
        ),
        ("A[x:3] B[x:3] -> [x]; convolve x: valid", 1, 3),
        ("A[x:1] B[x:1] -> [x]; convolve x: same, stride 5", 1, 1),
    ] {
        let found = best(text, None).expect("an order");
        assert_eq!(found.steps[0].modes, [(0, length)], "{text}");
        assert_eq!(found.cost, multiplications, "{text}");
    }
}

#[test]
fn other_costs_choose_other_orders() {
    let h200 = gpu("h200").expect("a GPU");
    let network = network(FIGURE_5B);
    let bytes = cheapest_order(&network, Cost::Bytes, None).expect("an order");
    assert_eq!((bytes.cost, bytes.bytes()), (134_532, 134_532));
    let latency = cheapest_order(&network, Cost::Latency(h200), None).expect("an order");
    let floors = latency.steps.iter();
    let floors = floors.map(|step| fp32_lanes_floor_us(2 * step.multiplications, step.bytes, h200));
    assert!((floors.sum::<f64>() - latency.cost as f64 / 1e6).abs() < 1e-5);
    assert!(latency.multiplications() > 38_016);
}

#[test]
fn overflow_of_64_bits_is_an_error() {
    let text = "A[i:4000000000, j:2] B[j, k:4000000000] C[k, l:4000000000] -> [i, l]";
    assert_eq!(best(text, None), Err(OrderError::TooLarge));
    let capped = best(text, Some(1));
    assert_eq!(
        capped,
        Err(OrderError::Cap {
            cap: 1,
            needed: 8_000_000_000
        })
    );
}

#[test]
fn errors_have_their_position() {
    for (text, message) in [
        ("A[i:2] -> [i]", "1:1: a network of 1 tensors; give 2 to 16"),
        ("-> []", "1:1: a network of 0 tensors; give 2 to 16"),
        (
            "A[i:2] A[i] -> []",
            "1:8: two tensors are named `A`; give each its own name",
        ),
        (
            "A[i:2, i] B[i] -> []",
            "1:8: `A` has two modes `i`; diagonals of one tensor are not supported, give each mode its own label",
        ),
        (
            "A[i:2]\n  B[i:3] -> []",
            "2:5: `i` has length 3 in `B` and 2 in `A`; make them equal, or use `convolve i: same`",
        ),
        (
            "A[i] B[i] -> []",
            "1:3: `i` has no length; add one, such as `i:8`",
        ),
        (
            "A[i:2, j:3] B[i] -> []",
            "1:8: `j` is only in `A` and not in the result; add it to the result, or to the tensor that it is contracted with",
        ),
        (
            "A[i:2] B[i] -> [k]",
            "1:17: no tensor has a mode `k`; the labels are i",
        ),
        (
            "A[i:2] B[i] -> [i, i]",
            "1:20: `i` appears twice in the result; remove one of the two",
        ),
        (
            "A[i:2] B[i] -> [i:2]",
            "1:17: `i` of the result has a length, which follows from the tensors; remove it",
        ),
        (
            "A[i:2] B[i] -> []; convolve k: same",
            "1:29: no tensor has a mode `k`; the labels are i",
        ),
        (
            "A[i:2] B[i:3] -> [i]; convolve i: same; convolve i: valid",
            "1:50: `i` appears twice in the convolutions; remove one of the two",
        ),
        (
            "A[i:2] B[i:3] C[i:4] -> [i]; convolve i: same",
            "1:39: `i` is convolved and in 3 tensors (A, B, C); it must be in two, a signal and a filter: with more, the values \
             at the ends would depend on the order",
        ),
        (
            "A[i:2] B[i:3] -> []; convolve i: same",
            "1:31: `i` is convolved but not in the result; add it there",
        ),
        (
            "A[i:2] B[i] -> [i]; convolve i: same",
            "1:10: `i` is convolved but has no length here; add one, such as `i:3`",
        ),
        (
            "A[i:4] B[i:3] -> [i]; convolve i: valid, dilation 2",
            "1:32: a filter of 3 elements with dilation 2 is longer than the 4 elements of `i`; shorten it, or use `same` padding",
        ),
        (
            "A[i:0] B[i] -> []",
            "1:5: `0` is not a size; write a whole number from 1 to 4294967295",
        ),
        (
            "A[i:2x] B[i] -> []",
            "1:5: `2x` is not a size; write a whole number from 1 to 4294967295",
        ),
        (
            "A[i:2] B[i] -> [i]; convolve i: full",
            "1:33: `full` found where `same` or `valid` is expected; write it as in convolve x: same, stride 2, dilation 1",
        ),
        (
            "A[i:2] B[i] -> [i]; convolve i: same, stride 1, stride 2",
            "1:49: `stride` found where `stride` or `dilation`, each once, is expected; write it as in convolve x: same, stride 2, \
             dilation 1",
        ),
        (
            "A[i:2] # -> [i]",
            "1:6: the text ends where a tensor's name or `->` is expected; write it as in A[i:2, j:3] B[j, k:4] -> C[i, k]",
        ),
        (
            "A[i:2] + B[i] -> [i]",
            "1:8: unexpected `+`; write a network as A[i:2, j:3] B[j, k:4] -> C[i, k]",
        ),
    ] {
        let error = parse_network("n", text).expect_err(text).to_string();
        let first = error.lines().next().unwrap_or_default();
        assert_eq!(first, format!("n:{message}"));
    }
}

#[test]
fn twelve_tensors_are_searched_in_under_a_second() {
    // A chain of tensors and a rank that all of them share.
    let mut text = String::new();
    for index in 0..12 {
        text += &format!(
            "T{index}[r:3, a{index}:{}, a{}:{}] ",
            2 + index % 5,
            index + 1,
            2 + (index + 1) % 5
        );
    }
    text += "-> [a0, a12]";
    let network = network(&text);
    let start = Instant::now();
    let found = cheapest_order(&network, Cost::Multiplications, Some(100)).expect("an order");
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(found.steps.len(), 11);
    assert!(found.largest <= 100);
}

/// A tensor or a product: its name, then label and length of each mode.
type Labelled = (String, BTreeMap<String, u64>);

/// A network for the exhaustive search: plain maps, with the work of each convolved label.
struct Plain {
    tensors: Vec<Labelled>,
    result: BTreeSet<String>,
    /// Length and number of products of each output.
    convolved: BTreeMap<String, (u64, u64)>,
}

/// The cost of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrderCost {
    multiplications: u64,
    bytes: u64,
    largest: u64,
}

impl Plain {
    /// Parses the notation without omitted lengths.
    fn of(text: &str) -> Self {
        let (tensors, rest) = text.split_once("->").expect("an arrow");
        let modes = |text: &str| -> Vec<(String, u64)> {
            let inner = text.trim().trim_end_matches(']');
            let labels = inner.split(',').filter(|label| !label.trim().is_empty());
            let pair = |label: &str| match label.split_once(':') {
                Some((label, length)) => (
                    label.trim().to_owned(),
                    length.trim().parse().expect("a length"),
                ),
                None => (label.trim().to_owned(), 0),
            };
            labels.map(pair).collect()
        };
        let tensors: Vec<_> = tensors
            .split_inclusive(']')
            .filter_map(|tensor| tensor.split_once('['))
            .map(|(name, inner)| {
                (
                    name.trim().to_owned(),
                    modes(inner).into_iter().collect::<BTreeMap<_, _>>(),
                )
            })
            .collect();
        let mut statements = rest.split(';');
        let result = statements
            .next()
            .expect("a result")
            .split_once('[')
            .expect("labels")
            .1;
        let convolved = statements.map(|statement| {
            let words: Vec<_> = statement
                .split([' ', ':', ','])
                .filter(|word| !word.is_empty())
                .collect();
            let number = |key| match words.iter().position(|word| *word == key) {
                Some(at) => words[at + 1].parse().expect("a number"),
                None => 1usize,
            };
            let mut lengths: Vec<u64> = tensors
                .iter()
                .filter_map(|(_, modes)| modes.get(words[1]).copied())
                .collect();
            lengths.sort_unstable();
            let [filter, signal] = lengths[..] else {
                panic!("{words:?} is not in two tensors");
            };
            let reach = (filter - 1) * number("dilation") as u64;
            let starts = (0..signal).step_by(number("stride"));
            let outputs = starts
                .filter(|start| words[2] == "same" || start + reach < signal)
                .count();
            (words[1].to_owned(), (outputs as u64, filter))
        });
        Self {
            result: modes(result).into_iter().map(|(label, _)| label).collect(),
            convolved: convolved.collect(),
            tensors,
        }
    }

    /// Combines two tensors; returns the product and its cost.
    fn join(&self, parts: &[Labelled], a: usize, b: usize) -> (Labelled, OrderCost) {
        let size = |modes: &BTreeMap<String, u64>| modes.values().product::<u64>();
        let (mut product, mut multiplications) = (BTreeMap::new(), 1);
        for label in parts[a]
            .1
            .keys()
            .chain(parts[b].1.keys())
            .collect::<BTreeSet<_>>()
        {
            let (of_a, of_b) = (parts[a].1.get(label), parts[b].1.get(label));
            let length = match (of_a, of_b, self.convolved.get(label)) {
                (Some(_), Some(_), Some(&(output, filter))) => {
                    multiplications *= filter;
                    output
                }
                (Some(&length), _, _) | (None, Some(&length), _) => length,
                (None, None, _) => unreachable!(),
            };
            multiplications *= length;
            let others = parts
                .iter()
                .enumerate()
                .filter(|(index, _)| ![a, b].contains(index));
            if self.result.contains(label)
                || others
                    .into_iter()
                    .any(|(_, part)| part.1.contains_key(label))
            {
                product.insert(label.clone(), length);
            }
        }
        let taken = OrderCost {
            multiplications,
            bytes: 4 * (size(&parts[a].1) + size(&parts[b].1) + size(&product)),
            largest: if parts.len() > 2 { size(&product) } else { 0 },
        };
        ((format!("({} {})", parts[a].0, parts[b].0), product), taken)
    }
}

/// Every order of a network with its cost.
struct AllOrders {
    orders: Vec<(String, OrderCost)>,
}

impl AllOrders {
    fn of(network: &Plain) -> Self {
        let mut orders = Vec::new();
        let none = OrderCost {
            multiplications: 0,
            bytes: 0,
            largest: 0,
        };
        Self::extend(network, &network.tensors, none, &mut orders);
        Self { orders }
    }

    fn extend(
        network: &Plain,
        parts: &[Labelled],
        so_far: OrderCost,
        orders: &mut Vec<(String, OrderCost)>,
    ) {
        if let [(name, _)] = parts {
            orders.push((name.clone(), so_far));
        }
        for a in 0..parts.len() {
            for b in a + 1..parts.len() {
                let (product, taken) = network.join(parts, a, b);
                let mut rest = parts.to_vec();
                rest.remove(b);
                rest[a] = product;
                let sum = OrderCost {
                    multiplications: so_far.multiplications + taken.multiplications,
                    bytes: so_far.bytes + taken.bytes,
                    largest: so_far.largest.max(taken.largest),
                };
                Self::extend(network, &rest, sum, orders);
            }
        }
    }

    fn least(&self, cap: u64, cost: fn(&OrderCost) -> u64) -> Option<(u64, u64)> {
        let within = self.orders.iter().filter(|(_, taken)| taken.largest <= cap);
        within.map(|(_, taken)| (cost(taken), taken.largest)).min()
    }
}

/// A random network of two to six tensors: labels of every kind, ranks shared by many, lengths from 1.
fn random_network(random: &mut Random) -> String {
    let tensors = 2 + random.below(5);
    let mut modes = vec![Vec::new(); tensors];
    let (mut result, mut convolutions) = (Vec::new(), String::new());
    for label in 0..1 + random.below(2 * tensors) {
        let label = format!("m{label}");
        let mut holders: Vec<_> = (0..tensors).collect();
        let kind = random.below(4);
        let wanted = match kind {
            // Convolved.
            0 => 2,
            // Kept.
            1 => 1 + random.below(tensors),
            // Summed over, by two or more.
            _ => 2 + random.below(tensors - 1),
        };
        while holders.len() > wanted {
            holders.remove(random.below(holders.len()));
        }
        let length = 1 + random.below(7);
        if kind == 0 {
            let dilation = 1 + random.below(2);
            let filter = 1 + random.below(3);
            let signal = (filter - 1) * dilation + 1 + random.below(6);
            let lengths = match random.below(2) {
                0 => [signal, filter],
                _ => [filter, signal],
            };
            for (&holder, length) in holders.iter().zip(lengths) {
                modes[holder].push(format!("{label}:{length}"));
            }
            let padding = random.pick(&["same", "valid"]);
            let stride = 1 + random.below(3);
            convolutions +=
                &format!("; convolve {label}: {padding}, stride {stride}, dilation {dilation}");
        } else {
            for &holder in &holders {
                modes[holder].push(format!("{label}:{length}"));
            }
        }
        if kind < 2 {
            result.push(label);
        }
    }
    let mut text = String::new();
    for (index, modes) in modes.iter().enumerate() {
        text += &format!("T{index}[{}] ", modes.join(", "));
    }
    format!("{text}-> [{}]{convolutions}", result.join(", "))
}

#[test]
fn a_thousand_random_networks_match_brute_force() {
    let mut random = Random::new(4);
    let mut refused = 0;
    for _ in 0..1000 {
        let text = random_network(&mut random);
        let parsed = network(&text);
        let every = AllOrders::of(&Plain::of(&text));
        // No cap, the cap that some order needs, and one that is just too low.
        let some = every.orders[random.below(every.orders.len())].1.largest;
        for cap in [u64::MAX, some, some.saturating_sub(1)] {
            for (cost, of) in [
                (
                    Cost::Multiplications,
                    (|taken| taken.multiplications) as fn(&OrderCost) -> u64,
                ),
                (Cost::Bytes, |taken| taken.bytes),
            ] {
                let found = cheapest_order(&parsed, cost, Some(cap));
                match every.least(cap, of) {
                    Some((cost, largest)) => {
                        let found = found.unwrap_or_else(|error| panic!("{error}: {text}"));
                        assert_eq!(
                            (found.cost, found.largest),
                            (cost, largest),
                            "{cap}: {text}"
                        );
                        // The reported costs of the steps are correct.
                        let told = order_text(&text, &found);
                        let same = OrderCost {
                            multiplications: found.multiplications(),
                            bytes: found.bytes(),
                            largest,
                        };
                        let is_told =
                            |order: &(String, OrderCost)| order.0 == told && order.1 == same;
                        assert!(every.orders.iter().any(is_told), "{told} {same:?}: {text}");
                    }
                    None => {
                        refused += 1;
                        let needed = every.orders.iter().map(|(_, taken)| taken.largest).min();
                        let needed = needed.expect("an order");
                        assert_eq!(found, Err(OrderError::Cap { cap, needed }), "{text}");
                    }
                }
            }
        }
    }
    assert!(refused > 100, "only {refused} caps were too small");
}
