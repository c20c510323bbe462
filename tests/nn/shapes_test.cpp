// What modules refuse by name, how rows are cut into tiles, and what weights and tables of parameters tell.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lora/core/ignore_index.hpp"
#include "lora/core/profile.hpp"
#include "lora/nn/head.hpp"
#include "lora/nn/lora_linear.hpp"
#include "lora/nn/param_table.hpp"
#include "lora/nn/tiles.hpp"
#include "support/backends.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"

namespace nn_shapes_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Linears = nn::LoraLinear<D, float>;

/// q, k and v of 8 columns, with 4, 2 and 2 of their own.
struct Subject {
  D dev{1};
  const std::vector<float> numbers = random_values<float>(64, 1);
  nn::ParamStore<D, float> params{};
  Linears module = make({4, 2, 2});

  nn::Weight<D> weight(Index rows, Index cols) const {
    return nn::Weight<D>(StoredView<D>(numbers.data(), DType::f32, rows, cols), nullptr);
  }
  Linears make(const std::vector<Index>& out, Index in_of_last = 8) const {
    std::vector<std::pair<std::string, nn::Linear<D, float>>> parts;
    const char* const names[] = {"q_proj", "k_proj", "v_proj"};
    for (std::size_t j = 0; j < out.size(); ++j)
      parts.emplace_back(names[j], nn::Linear<D, float>{weight(out[j], j + 1 < out.size() ? 8 : in_of_last)});
    return Linears(std::move(parts), 1);
  }
};

nn::Batch three_rows() { return {{0, 1, 2}, {0, 1, 2}, {0, 0, 0}, {{0, 3}}}; }

using Tiles = std::vector<std::pair<Index, Index>>;
Tiles tiles_of(Index rows, Index tile) {
  Tiles tiles;
  nn::for_row_tiles(rows, tile, [&](Index begin, Index count) { tiles.emplace_back(begin, count); });
  return tiles;
}

}  // namespace

TEST_CASE("nn shapes: the last layer leaves rows out where an eighth of them has no label, and one has") {
  for (const auto& [rows, labeled, leaves] :
       {std::tuple(8, 7, true), {8, 8, false}, {9, 8, false}, {16, 14, true}, {16, 15, false}, {1, 0, false}})
    CHECK((nn::leaves_rows_out(rows, labeled, false) == leaves && !nn::leaves_rows_out(rows, labeled, true)));
  D dev(1);
  nn::Batch batch = three_rows();
  batch.labels = {ignore_index, 5, ignore_index};
  nn::Pass<D, float> pass(dev, batch);
  CHECK(pass.wanted().empty());
  pass.want_labeled();
  REQUIRE(pass.wanted().size() == 1);
  CHECK(pass.wanted().data()[0] == 1);
}

TEST_CASE("nn shapes: projections of one input have as many columns, and as many ranks as there are") {
  Subject s;
  CHECK(message_of<ShapeError>([&] {
          s.make({4, 2, 2}, 6);
        }) == "[lora_linear] v_proj has 6 input columns but its neighbor has 8");
  CHECK(message_of<ShapeError>([&] {
          s.module.attach(s.params, "", std::vector<nn::LoraRank>{{1, 1}, {1, 1}}, 0);
        }) == "[lora_linear] 2 ranks for 3 projections");
  CHECK(s.module.in_features() == 8);
  CHECK(s.module.out_features() == 8);
  CHECK(s.module.projections()[2].first_column == 6);
  CHECK(s.module.projections()[2].name == "v_proj");
  CHECK(s.module.rank() == 0);
}

TEST_CASE("nn shapes: an adapter's factors have the names of their projections behind the prefix, and their groups") {
  Subject s;
  s.module.attach(s.params, "layer.", std::vector<nn::LoraRank>{{3, 1}, {0, 1}, {2, 1, 4}}, 0);
  CHECK(s.module.rank() == 5);
  std::vector<std::string> told;
  for (const auto& entry : s.params.entries()) {
    const auto place = s.params.place(entry.storage);
    told.push_back(concat(entry.name, ": ", entry.rows, " from ", entry.first_row, " of (", place.rows, ", ",
                          place.cols, ") in ", place.group, entry.transposed ? ", transposed" : ""));
  }
  CHECK(told == std::vector<std::string>{"layer.q_proj.lora_A: 3 from 0 of (5, 8) in 0",
                                         "layer.q_proj.lora_B: 3 from 0 of (3, 4) in 0, transposed",
                                         "layer.v_proj.lora_A: 2 from 3 of (5, 8) in 0",
                                         "layer.v_proj.lora_B: 2 from 0 of (2, 2) in 4, transposed"});
  s.module.detach();
  CHECK(s.module.rank() == 0);
}

TEST_CASE("nn shapes: a group of projections names what does not fit, and leaves alone what has no rows") {
  Subject s;
  s.module.attach(s.params, "", std::vector<nn::LoraRank>{{1, 1}, {1, 1}, {1, 1}}, 0);
  s.params.build(s.dev);
  const nn::Pass<D, float> pass(s.dev, three_rows());
  Matrix<D, float> x(s.dev, 3, 8, 1), y(s.dev, 3, 8, 2), narrow(s.dev, 3, 7, 3), few(s.dev, 2, 8, 4);
  Linears::Saved saved;
  const auto told = [](auto&& call) { return message_of<ShapeError>(call); };
  CHECK(told([&] { s.module.forward(s.dev, pass, narrow.in(), y.view(), saved, nn::Keep::nothing); }) ==
        "[lora_linear] x is (3, 7) but (3, 8) was expected");
  for (auto* wrong : {&narrow, &few}) {
    const std::string shape = to_string(wrong->view().shape());
    CHECK(told([&] { s.module.forward(s.dev, pass, x.in(), wrong->view(), saved, nn::Keep::nothing); }) ==
          concat("[lora_linear] y is ", shape, " but (3, 8) was expected"));
    CHECK(told([&] { s.module.backward_input(s.dev, saved, y.in(), wrong->view()); }) ==
          concat("[lora_linear_backward] dx is ", shape, " but (3, 8) was expected"));
  }
  CHECK(told([&] { s.module.backward_input(s.dev, saved, narrow.in(), x.view()); }) ==
        "[lora_linear_backward] dy is (3, 7) but (3, 8) was expected");
  CHECK(told([&] { s.module.backward_params(s.dev, x.in(), saved, narrow.in()); }) ==
        "[lora_linear_backward] dy is (3, 7) but (3, 8) was expected");
  Matrix<D, float> none(s.dev, 0, 8, std::vector<float>{});
  const nn::Pass<D, float> nothing(s.dev, nn::Batch{});
  Profile profile(Profile::Limits{.skipped_steps = 0});
  s.dev.set_profile(&profile);
  {
    const ProfileScope step(s.dev, Profile::Kind::step, "step");
    s.module.forward(s.dev, nothing, none.in(), none.view(), saved, nn::Keep::all);
    s.module.backward_input(s.dev, saved, none.in(), none.view());
    s.module.backward_params(s.dev, none.in(), saved, none.in());
  }
  s.dev.set_profile(nullptr);
  CHECK(profile.nodes().size() == 2);  // the root and the step
  CHECK(s.dev.arena().saved_bytes() == 0);
}

TEST_CASE("nn shapes: a profile has the projections' names, and what their update costs beside them") {
  Subject s;
  s.module.attach(s.params, "", std::vector<nn::LoraRank>{{1, 1}, {1, 1}, {1, 1}}, 0);
  s.params.build(s.dev);
  const nn::Pass<D, float> pass(s.dev, three_rows());
  Matrix<D, float> x(s.dev, 3, 8, 1), y(s.dev, 3, 8, 2), dx(s.dev, 3, 8, 3);
  Profile profile(Profile::Limits{.skipped_steps = 0});
  s.dev.set_profile(&profile);
  {
    const ProfileScope step(s.dev, Profile::Kind::step, "step");
    const Arena::Scope scope(s.dev.arena());
    const Arena::SavedScope kept(s.dev.arena());
    Linears::Saved saved;
    s.module.forward(s.dev, pass, x.in(), y.view(), saved, nn::Keep::attention);
    s.module.recompute(s.dev, pass, x.in(), saved);
    s.module.backward_input(s.dev, saved, y.in(), dx.view());
    s.module.backward_params(s.dev, x.in(), saved, y.in());
  }
  s.dev.set_profile(nullptr);
  Index modules = 0;
  for (const auto& node : profile.nodes()) {
    if (node.kind == Profile::Kind::kernel) {
      const auto& part = profile.nodes()[node.parent];
      const bool thin = node.family == "low-rank" || node.family == "elementwise";
      if (thin) CHECK(part.name == "low-rank");
    }
    if (node.name == "low-rank") CHECK(node.kind == Profile::Kind::part);
    if (node.kind != Profile::Kind::part || node.name == "low-rank") continue;
    ++modules;
    CHECK(node.name == "q_proj, k_proj, v_proj");
    CHECK(node.calls == 4);
  }
  CHECK(modules == 1);
}

TEST_CASE("nn shapes: the head names what does not fit") {
  Subject s;
  const nn::Head<D, float> head(s.weight(8, 8), s.dev.tiling());
  CHECK(head.vocabulary() == 8);
  CHECK(head.tiling().head_rows == s.dev.tiling().head_rows);
  Matrix<D, float> x(s.dev, 3, 8, 1), few(s.dev, 2, 8, 2), narrow(s.dev, 3, 7, 3), row(s.dev, 1, 3, 4);
  const Matrix<D, std::int32_t> labels(s.dev, 1, 3, std::vector<std::int32_t>{0, 1, 7}),
      two(s.dev, 1, 2, std::vector<std::int32_t>{0, 1});
  const nn::LossRows<D, float> rows{row.view(), row.view(), row.view()};
  const auto told = [](auto&& call) { return message_of<ShapeError>(call); };
  CHECK(told([&] { head.loss(s.dev, x.in(), two.in(), 1, {}, rows); }) ==
        "[head] labels is (1, 2) but (1, 3) was expected");
  CHECK(told([&] { head.loss(s.dev, x.in(), labels.in(), 1, few.view(), rows); }) ==
        "[head] dx is (2, 8) but (3, 8) was expected");
  CHECK(told([&] { head.loss(s.dev, x.in(), labels.in(), 1, narrow.view(), rows); }) ==
        "[head] dx is (3, 7) but (3, 8) was expected");
  CHECK(told([&] { head.logits(s.dev, x.in(), narrow.view()); }) == "[head] logits is (3, 7) but (3, 8) was expected");
  CHECK(told([&] { head.logits(s.dev, x.in(), few.view()); }) == "[head] logits is (2, 8) but (3, 8) was expected");
}

TEST_CASE("nn shapes: rows are cut into tiles of about equal size, that begin on 16 where tiles are multiples of it") {
  CHECK(tiles_of(0, 16).empty());
  CHECK(tiles_of(16, 16) == Tiles{{0, 16}});
  CHECK(tiles_of(17, 16) == Tiles{{0, 16}, {16, 1}});
  CHECK(tiles_of(100, 64) == Tiles{{0, 48}, {48, 52}});
  CHECK(tiles_of(7, 3) == Tiles{{0, 2}, {2, 2}, {4, 3}});
  CHECK(tiles_of(6, 3) == Tiles{{0, 3}, {3, 3}});
  CHECK(nn::largest_row_tile(7, 3) == 3);
  CHECK(nn::largest_row_tile(100, 64) == 52);
  CHECK(nn::largest_row_tile(17, 16) == 16);
  CHECK(nn::largest_row_tile(0, 16) == 0);
  for (const Index tile : {1, 3, 16, 48, 50, 64})
    for (Index rows = 0; rows < 400; ++rows) {
      Index largest = 0;
      nn::for_row_tiles(rows, tile, [&](Index, Index count) { largest = std::max(largest, count); });
      CAPTURE(rows);
      CAPTURE(tile);
      CHECK(nn::largest_row_tile(rows, tile) == largest);
    }
}

TEST_CASE("nn shapes: sums go to their target where it has their type, else beside it") {
  Subject s;
  Matrix<D, float> y(s.dev, 3, 8, 1);
  Matrix<D, bf16> narrow(s.dev, 3, 8, 2);
  const Arena::Scope scope(s.dev.arena());
  CHECK(nn::sum_for(s.dev, y.view()).data() == y.view().data());
  const View<D, float> sums = nn::sum_for(s.dev, narrow.view());
  CHECK(static_cast<const void*>(sums.data()) != static_cast<const void*>(narrow.view().data()));
  CHECK(sums.shape() == Shape{3, 8});
}

TEST_CASE("nn shapes: a weight whose place moves is read behind its offset, and is there without an address too") {
  Subject s;
  const auto place = std::make_shared<nn::WeightPlace>();
  const nn::Weight<D> moving(StoredView<D>(nullptr, DType::bf16, 3, 8), place, 64), none;
  CHECK_FALSE(moving.empty());
  CHECK(none.empty());
  CHECK_FALSE(s.weight(2, 8).empty());
  CHECK((moving.rows() == 3 && moving.cols() == 8 && moving.dtype() == DType::bf16 && moving.bytes() == 48));
  CHECK(message_of<DeviceError>([&] { (void)moving.use(s.dev); }) ==
        "[weight] a matrix (3, 8) is read while it is not on the device; expected its layer to be acquired before");
  place->begin = reinterpret_cast<const std::byte*>(s.numbers.data());
  const auto use = moving.use(s.dev);
  CHECK(use.view().data() == place->begin + 64);
  CHECK(use.view().dtype() == DType::bf16);
  CHECK(use.view().shape() == Shape{3, 8});
}

TEST_CASE("nn shapes: stored numbers are read in place where they have the type, else decoded to scratch") {
  Subject s;
  const Arena::Scope scope(s.dev.arena());
  const StoredView<D> stored(s.numbers.data(), DType::f32, 2, 8);
  CHECK(nn::decoded<float>(s.dev, stored).data() == s.numbers.data());
  CHECK(s.dev.arena().scratch_bytes() == 0);
  const auto narrow = nn::decoded<bf16>(s.dev, stored);
  CHECK(s.dev.arena().scratch_bytes() > 0);
  for (Index i = 0; i < 16; ++i)
    CHECK(real(narrow.data()[i]) == real(rounded<bf16>(real(s.numbers[static_cast<std::size_t>(i)]))));
}

TEST_CASE("nn shapes: a table of parameters counts whole blocks, and tells choices apart") {
  nn::ParamTable table;
  CHECK(table.groups() == 0);
  CHECK(table.add({2, 512, 0}) == 0);
  CHECK(table.add({1, 1025, 2}) == 1);
  CHECK(table.add({1, 1, 0}) == 2);  // which has no name
  table.name({"a.x", 0, 0, 1});
  table.name({"a.y", 0, 1, 1});
  table.name({"b", 1, 0, 1});
  CHECK(table.groups() == 3);
  CHECK(table.storages()[0].in_blocks() == 1024);
  CHECK(table.storages()[1].in_blocks() == 2048);
  CHECK(table.storages()[2].in_blocks() == 1024);
  CHECK(table.elements_of(table.entries()[1]) == 512);
  CHECK(table.elements_of(table.entries()[2]) == 1025);
  const auto only = [](std::string_view letters) {
    return [=](std::string_view name) { return letters.find(name[0]) != letters.npos; };
  };
  CHECK(table.told(only("a")) == std::vector<bool>{true, false, true});
  CHECK(table.told(only("b")) == std::vector<bool>{false, true, true});
  const auto sizes = table.sizes(only("a"));
  REQUIRE(sizes.size() == 3);
  CHECK((sizes[0].all == 2048 && sizes[0].trained == 2048));
  CHECK((sizes[1].all == 0 && sizes[1].trained == 0));
  CHECK((sizes[2].all == 2048 && sizes[2].trained == 0));
  CHECK(table.differs(only("a"), only("ab")));
  CHECK_FALSE(table.differs(only("b"), only("bc")));
  CHECK_THROWS_WITH_AS((void)table.told([](std::string_view name) { return name == "a.x"; }),
                       "a.y can't be frozen apart from its neighbors, with which it shares a matrix", ConfigError);
  CHECK_THROWS_WITH_AS((void)table.told(only("c")), "none of the model's 3 trainable tensors is left to train",
                       ConfigError);
  table.clear();
  CHECK((table.groups() == 0 && table.storages().empty() && table.entries().empty()));
}

}  // namespace nn_shapes_test
