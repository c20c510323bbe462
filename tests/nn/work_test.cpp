// What modules ask of a device, by hand: FLOPs, bytes and decoded numbers of small shapes, one switch after the other.

#include "lora/nn/work.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace work_test {

namespace {

using namespace lora;

constexpr double never = std::numeric_limits<double>::infinity();

/// Ten rows in float32; updates join decoded weights where `fold_ratio` says so.
nn::WorkPass pass_of(double fold_ratio = never) {
  return {.rows = 10,
          .labeled = 6,
          .pairs = 33,
          .tiling = {.rows = 512, .head_rows = 4, .head_columns = 16, .fold_ratio = fold_ratio}};
}
nn::WorkPass narrow_pass(double fold_ratio = never) {
  nn::WorkPass pass = pass_of(fold_ratio);
  pass.element = 2;
  return pass;
}

void check(const nn::Work& work, const nn::Work& expected) {
  CHECK(work.products == expected.products);
  CHECK(work.attention == expected.attention);
  CHECK(work.moved == expected.moved);
  CHECK(work.thin == expected.thin);
  CHECK(work.decoded == expected.decoded);
}
nn::Work without(const nn::Work& all, const nn::Work& part) { return all + -1.0 * part; }

/// Three projections of 8 columns, 15 in all: ranks 2, 0 and 4, the first with a bias; Σ R O = 38.
nn::LoraLinearShape linears() {
  return {.in = 8,
          .projections = {{.out = 5, .decodes = true, .bias = true, .rank = 2},
                          {.out = 3, .decodes = true},
                          {.out = 7, .decodes = true, .rank = 4}}};
}
nn::LoraLinearShape training_linears() {
  auto shape = linears();
  shape.trains_a = shape.projections[0].trains_b = shape.projections[2].trains_b = true;
  return shape;
}
nn::LoraLinearShape frozen(Index in, const std::vector<Index>& out) {
  nn::LoraLinearShape shape{.in = in};
  for (const Index columns : out) shape.projections.push_back({.out = columns});
  return shape;
}
/// 4 heads and 2 key heads of 3 columns; gate and up of 16.
nn::BlockShape block() {
  nn::BlockShape shape;
  shape.attention = {.width = 8, .heads = 4, .kv_heads = 2, .head_dim = 3};
  shape.attention.qkv_proj = frozen(8, {12, 6, 6});
  shape.attention.o_proj = frozen(12, {8});
  shape.mlp = {.width = 8, .gate_up_proj = frozen(8, {16, 16}), .down_proj = frozen(16, {8})};
  return shape;
}

constexpr double rows8 = 10 * 8 * 4, qk = 10 * 18 * 4, rows16 = 10 * 16 * 4;  // bytes
constexpr double qkv_flops = 20 * 8 * 24, o_flops = 20 * 12 * 8, gate_up_flops = 20 * 8 * 32, down_flops = 20 * 16 * 8;

}  // namespace

TEST_CASE("work: sums and multiples are those of each number") {
  const nn::Work a{1, 2, 3, 4, 5}, b{10, 20, 30, 40, 50};
  check(a + b, {11, 22, 33, 44, 55});
  check(3 * a, {3, 6, 9, 12, 15});
  nn::Work sum = a;
  check(sum += b, {11, 22, 33, 44, 55});
  CHECK(b.flops() == 30);
}

TEST_CASE("work: projections forward, with an update beside the product or in the decoded weight") {
  constexpr double h = 20 * 8 * 6, w = 20 * 8 * 15, b = 20 * 38, bias = 2 * 10 * 5 * 4;
  const auto of = [](const nn::WorkPass& pass, const nn::LoraLinearShape& shape) {
    return nn::forward_work(pass, shape);
  };
  // h is read and written as it is formed and scaled, and y twice where the update is added to it.
  check(of(pass_of(), linears()), {h + w + b, 0, 2 * 10 * 6 * 4 + bias, 10 * (8 + 6) * 4 + 2 * 10 * 12 * 4, 120});
  check(of(pass_of(0), linears()), {w, 0, bias, 0, 120});
  // In bfloat16 one kernel sums all, the bias too, and no weight could hold the update.
  for (const double fold_ratio : {never, 0.0})
    check(of(narrow_pass(fold_ratio), linears()), {h + w + b, 0, 2 * 10 * 6 * 2, 10 * (8 + 6) * 2, 120});
  // With dropout, which a weight could not hold either: x is read and written once more.
  auto drops = linears();
  drops.drops = true;
  for (const double fold_ratio : {never, 0.0})
    check(of(pass_of(fold_ratio), drops),
          {h + w + b, 0, 2 * 10 * 6 * 4 + 2 * rows8 + bias, 10 * (8 + 6) * 4 + 2 * 10 * 12 * 4, 120});
  auto mixed = linears();
  mixed.projections[1].decodes = false;  // one that is read in place keeps the update out of the others
  check(of(pass_of(0), mixed), {h + w + b, 0, 2 * 10 * 6 * 4 + bias, 10 * (8 + 6) * 4 + 2 * 10 * 12 * 4, (5 + 7) * 8});
  auto plain = linears();
  for (auto& p : plain.projections) p.rank = 0;
  plain.drops = true;
  for (const double fold_ratio : {never, 0.0}) check(of(pass_of(fold_ratio), plain), {w, 0, bias, 0, 120});
}

TEST_CASE("work: an update joins the weights above the tiling's rows, of every projection") {
  const auto joins = [](Index rows, const std::vector<Index>& out) {
    nn::WorkPass pass = pass_of(1);
    pass.rows = rows;
    auto shape = frozen(8, out);
    for (auto& p : shape.projections) {
      p.decodes = true;
      p.rank = 1;
    }
    return nn::forward_work(pass, shape).thin == 0;
  };
  // 2 · 8 · 8 / (8 + 8) rows, or 2 · 8 · 24 / (8 + 24).
  CHECK_FALSE(joins(8, {8}));
  CHECK(joins(9, {8}));
  for (const std::vector<Index>& out : {std::vector<Index>{8, 24}, {24, 8}}) {
    CHECK_FALSE(joins(12, out));
    CHECK(joins(13, out));
  }
}

TEST_CASE("work: projections backward, with what trains and what dropout adds") {
  constexpr double dx = 20 * 8 * (15 + 6), db = 2 * 20 * 38, da = 20 * 8 * 6;
  const auto of = [](const nn::WorkPass& pass, const nn::LoraLinearShape& shape, bool with_dx) {
    return nn::backward_work(pass, shape, with_dx);
  };
  auto shape = training_linears();
  check(of(pass_of(), shape, true), {dx + db + da, 0, 0, 2 * rows8 + 10 * 12 * 4 + rows8, 120});
  check(of(pass_of(), shape, false), {db + da, 0, 0, 10 * 12 * 4 + rows8, 0});
  check(of(narrow_pass(0), shape, true), {dx + db + da, 0, 0, 10 * 12 * 2 + rows8 / 2, 120});
  // In the weights: h is formed for the gradients alone.
  check(of(pass_of(0), shape, true), {20 * 8 * 15 + db + 2 * da, 0, 0, 10 * 12 * 4, 120});
  check(of(pass_of(0), shape, false), {db + 2 * da, 0, 0, 10 * 12 * 4, 0});
  // dh A is formed, dropped and added; in bfloat16 the sum of both is rounded then.
  shape.drops = true;
  for (const double fold_ratio : {never, 0.0})
    check(of(pass_of(fold_ratio), shape, true),
          {dx + db + da, 0, 3 * rows8 + 2 * rows8, 2 * rows8 + 10 * 12 * 4 + rows8, 120});
  check(of(pass_of(), shape, false), {db + da, 0, 2 * rows8, 10 * 12 * 4 + rows8, 0});
  check(of(narrow_pass(), shape, true),
        {dx + db + da, 0, 10 * 8 * (3 * 4 + 4 + 2) + 2 * 10 * 8 * 2, 10 * 12 * 2 + rows8 / 2, 120});
  SUBCASE("B alone") {
    shape = training_linears();
    shape.trains_a = false;
    check(of(pass_of(), shape, false), {db, 0, 0, 10 * 12 * 4, 0});
    check(of(pass_of(0), shape, false), {db + 2 * da, 0, 0, 10 * 12 * 4, 0});
    shape.drops = true;
    check(of(pass_of(), shape, false), {db, 0, 0, 10 * 12 * 4, 0});
  }
  SUBCASE("nothing of the adapter") {
    check(of(pass_of(), linears(), true), {dx + db, 0, 0, 2 * rows8 + 10 * 12 * 4, 120});
    check(of(pass_of(), linears(), false), {});
    check(of(pass_of(0), linears(), true), {20 * 8 * 15, 0, 0, 0, 120});
    check(of(pass_of(0), linears(), false), {});
  }
  SUBCASE("weights and biases of the model") {
    auto own = frozen(8, {5, 3, 7});
    own.drops = true;  // of nothing
    own.projections[0].trains_weight = own.projections[2].trains_bias = true;
    check(of(pass_of(), own, false), {20 * 8 * 5, 0, 10 * 7 * 4, 0, 0});
    check(of(pass_of(), own, true), {20 * 8 * (15 + 5), 0, 10 * 7 * 4, 0, 0});
  }
}

TEST_CASE("work: a layer forward is its products, attention over the pairs, norms, rotation and activation") {
  nn::BlockShape shape = block();
  constexpr double products = qkv_flops + o_flops + gate_up_flops + down_flops, attention = 2 * 2 * 12 * 33;
  check(nn::forward_work(pass_of(), shape), {products, attention, 3 * rows8 + 2 * qk + 3 * rows8 + 3 * rows16, 0, 0});
  shape.attention.qk_norm = true;
  check(nn::forward_work(pass_of(), shape), {products, attention, 3 * rows8 + 4 * qk + 3 * rows8 + 3 * rows16, 0, 0});
  shape.attention.window = 4;
  nn::WorkPass pass = pass_of();
  pass.windowed = {{3, 15}, {4, 18}};
  check(nn::forward_work(pass, shape), {products, 2 * 2 * 12 * 18, 3 * rows8 + 4 * qk + 3 * rows8 + 3 * rows16, 0, 0});
}

TEST_CASE("work: a layer backward goes as far as something trains or dx is wanted") {
  const nn::BlockShape plain = block();
  constexpr double all = qkv_flops + o_flops + gate_up_flops + down_flops, attention = 2 * 5 * 12 * 33;
  constexpr double mlp_moved = 6 * rows16 + 5 * rows8;
  const auto of = [](const nn::BlockShape& shape, bool with_dx) {
    return nn::backward_work(pass_of(), shape, with_dx);
  };
  check(of(plain, true), {all, attention, mlp_moved + 2 * qk + 5 * rows8, 0, 0});
  SUBCASE("norms of q and k are formed again") {
    nn::BlockShape shape = plain;
    shape.attention.qk_norm = true;
    check(of(shape, true), {all, attention, mlp_moved + 9 * qk + 5 * rows8, 0, 0});
    shape.attention.norms_train = true;
    check(of(shape, true), {all, attention, mlp_moved + (9 + 2) * qk + 5 * rows8, 0, 0});
    check(of(shape, false),
          {gate_up_flops + down_flops + o_flops, attention, mlp_moved + (9 + 2) * qk + 2 * rows8, 0, 0});
  }
  SUBCASE("the first norm needs the gradient of its output") {
    nn::BlockShape shape = plain;
    shape.attention.norms_train = shape.attention.norm_trains = true;
    check(of(shape, true), {all, attention, mlp_moved + 2 * qk + 7 * rows8, 0, 0});
    check(of(shape, false), {all, attention, mlp_moved + 2 * qk + 4 * rows8, 0, 0});
  }
  SUBCASE("o alone needs nothing below it") {
    nn::BlockShape shape = plain;
    shape.attention.o_proj.projections[0].trains_weight = true;
    check(of(shape, false), {gate_up_flops + down_flops + o_flops, 0, mlp_moved, 0, 0});
  }
  SUBCASE("q, k, v alone") {
    nn::BlockShape shape = plain;
    shape.attention.qkv_proj.projections[0].trains_weight = true;
    check(of(shape, false),
          {gate_up_flops + down_flops + o_flops + 20 * 8 * 12, attention, mlp_moved + 2 * qk + 2 * rows8, 0, 0});
  }
  SUBCASE("down alone: the activation is formed again for its gradient") {
    nn::BlockShape shape = plain;
    shape.mlp.down_proj.projections[0].trains_weight = true;
    check(of(shape, false), {down_flops, 0, 3 * rows16, 0, 0});
  }
  SUBCASE("gate alone") {
    nn::BlockShape shape = plain;
    shape.mlp.gate_up_proj.projections[0].trains_weight = true;
    check(of(shape, false), {down_flops + 20 * 8 * 16, 0, 6 * rows16 + 2 * rows8, 0, 0});
  }
  SUBCASE("the second norm alone") {
    nn::BlockShape shape = plain;
    shape.mlp.norm_trains = true;
    check(of(shape, false), {down_flops + gate_up_flops, 0, 6 * rows16 + 4 * rows8, 0, 0});
    check(of(shape, true), {all, attention, mlp_moved + 2 * rows8 + 2 * qk + 5 * rows8, 0, 0});
  }
}

TEST_CASE("work: gradient checkpointing forms all again but attention itself and the last product") {
  const auto again = [](nn::BlockShape shape, double fold_ratio = never) {
    const nn::WorkPass pass = pass_of(fold_ratio);
    const nn::Work once = nn::backward_work(pass, shape, true);
    shape.recomputes = true;
    return without(nn::backward_work(pass, shape, true), once);
  };
  constexpr double products = qkv_flops + o_flops + gate_up_flops, moved = 3 * rows8 + 2 * qk + 2 * rows8;
  nn::BlockShape shape = block();
  check(again(shape), {products, 0, moved, 0, 0});
  shape.attention.qk_norm = true;
  check(again(shape), {products, 0, moved + 2 * qk, 0, 0});
  shape = block();
  shape.mlp.down_proj.projections[0].rank = 2;
  const double h = 20 * 16 * 2, hidden = 2 * 10 * 2 * 4 + 3 * rows16, thin = 10 * (16 + 2) * 4;
  check(again(shape), {products + h, 0, moved + hidden, thin, 0});
  shape.mlp.down_proj.projections[0].decodes = true;
  check(again(shape), {products + h, 0, moved + hidden, thin, 0});
  check(again(shape, 0), {products, 0, moved, 0, 0});  // the update joins the weight: no h is kept
}

TEST_CASE(
    "work: behind the last layer's attention labeled rows alone count, where they are few and nothing is dropped") {
  nn::WorkPass pass = pass_of(), few = pass;
  pass.labeled = pass.rows;
  few.labeled = few.wanted = 4;
  nn::BlockShape trains = block();
  trains.attention.qkv_proj.projections[0].trains_weight = trains.recomputes = true;
  nn::StackShape stack{.width = 8, .layers = {trains, trains}};
  const auto of_layer = [&](const nn::WorkPass& own) {
    return nn::forward_work(own, trains) + nn::backward_work(own, trains, true);
  };
  const nn::Work all = nn::training_work(pass, stack, false);
  nn::WorkPass given = pass;
  given.labeled = 4;
  check(without(all, nn::training_work(given, stack, false)), without(of_layer(pass), of_layer(few)));
  // Forward, backward and recompute of o, gate and up, forward and backward of down.
  CHECK(without(of_layer(pass), of_layer(few)).products == 0.6 * (3 * (o_flops + gate_up_flops) + 2 * down_flops));
  stack.layers.back().mlp.down_proj.drops = true;
  stack.layers.front().mlp.down_proj.drops = true;
  nn::WorkPass dropping = pass;
  dropping.labeled = 4;
  check(nn::training_work(dropping, stack, false), nn::training_work(pass, stack, false));
}

TEST_CASE("work: a stack goes back down to the lowest layer that trains, or to its input") {
  nn::WorkPass pass = pass_of();
  pass.labeled = pass.rows;
  nn::BlockShape trains = block();
  trains.mlp.down_proj.projections[0].trains_weight = true;
  const nn::StackShape stack{.width = 8, .layers = {block(), trains, block()}};
  const nn::Work forward = 2 * nn::forward_work(pass, block()) + nn::forward_work(pass, trains);
  check(nn::training_work(pass, stack, false), nn::Work{0, 0, 4 * rows8} + forward +
                                                   nn::backward_work(pass, trains, false) +
                                                   nn::backward_work(pass, block(), true));
  check(nn::training_work(pass, stack, true), nn::Work{0, 0, 7 * rows8} + forward +
                                                  nn::backward_work(pass, trains, true) +
                                                  2 * nn::backward_work(pass, block(), true));
  const nn::StackShape none{.width = 8, .layers = {block()}};
  check(nn::training_work(pass, none, false), nn::Work{0, 0, 4 * rows8} + nn::forward_work(pass, block()));
}

TEST_CASE("work: the head sees labeled rows, in parts, and twice the logits where its weight trains by blocks") {
  nn::HeadShape shape{.vocabulary = 50, .width = 8};
  constexpr double logits = 6 * 50, product = 2 * logits * 8, rows = 6 * 8 * (11 * 4 + 4) + rows8;
  nn::WorkPass pass = pass_of();
  check(nn::training_work(pass, shape), {2 * product, 0, logits * 8 + rows, 0, 0});
  check(nn::training_work(narrow_pass(), shape),
        {2 * product, 0, logits * (4 + 2) + 6 * 8 * (11 * 2 + 4) + rows8 / 2, 0, 0});
  shape.decodes = true;  // for each of two parts, of 4 rows and of 2
  check(nn::training_work(pass, shape), {2 * product, 0, logits * 8 + rows, 0, 2 * 50 * 8});
  pass.labeled = 4;
  CHECK(nn::training_work(pass, shape).decoded == 50 * 8);
  pass.labeled = 6;
  shape.trains = true;
  check(nn::training_work(pass, shape), {4 * product, 0, 2 * logits * 8 + rows, 0, 2 * 2 * 50 * 8});
  pass.whole_rows = true;
  check(nn::training_work(pass, shape), {3 * product, 0, logits * 8 + rows, 0, 2 * 50 * 8});
}

TEST_CASE("work: an update clears, norms and steps each number, and copies it where products read another type") {
  check(nn::update_work(7, 4, 4), {0, 0, 7 * 9 * 4, 0, 0});
  check(nn::update_work(7, 2, 4), {0, 0, 7 * (9 * 4 + 4 + 2), 0, 0});
}

}  // namespace work_test
