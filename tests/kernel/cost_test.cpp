// What a profile tells of each kernel: its family and name, FLOPs where the family counts them, and the bytes of its
// operands, once each, of one that is added to twice.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "lora/core/profile.hpp"
#include "lora/cpu/kernels.hpp"
#include "support/matrix.hpp"

namespace kernel_cost_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
template <class T>
using M = Matrix<D, T>;

/// The one kernel that the call has recorded.
Profile::Node recorded(D& dev, const std::function<void()>& call) {
  Profile profile;
  dev.set_profile(&profile);
  {
    const ProfileScope step(dev, Profile::Kind::step, "step");
    call();
  }
  dev.set_profile(nullptr);
  REQUIRE(profile.nodes().size() == 3);
  CHECK(profile.nodes().back().kind == Profile::Kind::kernel);
  return profile.nodes().back();
}

struct Costs {
  D dev{1};

  void operator()(std::string_view family, std::string_view name, double flops, double bytes,
                  const std::function<void()>& call) {
    CAPTURE(name);
    const Profile::Node node = recorded(dev, call);
    CHECK(node.family == family);
    CHECK(node.name == name);
    CHECK(node.flops == flops);
    CHECK(node.bytes == bytes);
  }
};

std::vector<std::int32_t> numbers(std::int32_t count) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back(i);
  return result;
}

}  // namespace

TEST_CASE("kernel cost: products, alone and in sums, of every form") {
  Costs check;
  D& dev = check.dev;
  M<float> a(dev, 2, 3, 1), at(dev, 3, 2, 2), b(dev, 3, 5, 3), bt(dev, 5, 3, 4), c(dev, 2, 5, 5);
  M<bf16> narrow(dev, 2, 3, 6), narrow_b(dev, 3, 5, 7), narrow_c(dev, 2, 5, 8);
  M<float> bias(dev, 1, 5, 9);
  constexpr double flops = 2 * 2 * 3 * 5, numbers_of = 2 * 3 + 3 * 5 + 2 * 5;
  using kernel::Form;
  check("gemm", "gemm", flops, 4 * numbers_of, [&] { kernel::gemm(dev, Form::nn, a.in(), b.in(), c.view()); });
  check("gemm", "gemm", flops, 4 * numbers_of, [&] { kernel::gemm(dev, Form::nt, a.in(), bt.in(), c.view()); });
  check("gemm", "gemm", flops, 4 * (numbers_of + 2 * 5),
        [&] { kernel::gemm(dev, Form::tn, at.in(), b.in(), c.view(), 1.0, true); });
  check("gemm", "gemm", flops, 2 * (2 * 3 + 3 * 5) + 4 * 2 * 5,
        [&] { kernel::gemm(dev, Form::nn, narrow.in(), narrow_b.in(), c.view()); });
  const kernel::ProductTerm<D, bf16> one{Form::nn, narrow.in(), narrow_b.in()};
  const std::vector<kernel::ProductTerm<D, bf16>> two{one, one};
  for (const bool accumulate : {false, true})
    check("gemm", "sum_of_products", 2 * flops, 2 * (2 * (2 * 3 + 3 * 5) + (accumulate ? 2 : 1) * 2 * 5),
          [&] { kernel::sum_of_products<D, bf16>(dev, two, bias.in(), narrow_c.view(), accumulate); });
}

TEST_CASE("kernel cost: attention over the pairs of queries and keys that see each other") {
  Costs check;
  D& dev = check.dev;
  const kernel::AttentionShape shape{4, 2, 3, 1};
  M<float> q(dev, 5, 12, 1), k(dev, 9, 6, 2), v(dev, 9, 6, 3), out(dev, 5, 12, 4);
  // Of 3 queries, the last of 7 keys: 5, 6, 7; of 2 alone: 1, 2.
  const std::vector<kernel::Segment> queries{{0, 3}, {3, 5}}, keys{{0, 7}, {7, 9}};
  check("attention", "attention", 2 * 2 * 4 * 3 * (5 + 6 + 7 + 1 + 2), 4 * (2 * 5 * 12 + 2 * 9 * 6),
        [&] { kernel::attention<D, float>(dev, shape, q.in(), k.in(), v.in(), queries, keys, out.view(), nullptr); });
  const kernel::AttentionShape windowed{4, 2, 3, 1, 6};  // 5, 6, 6; 1, 2
  check("attention", "attention", 2 * 2 * 4 * 3 * (5 + 6 + 6 + 1 + 2), 4 * (2 * 5 * 12 + 2 * 9 * 6), [&] {
    kernel::attention<D, float>(dev, windowed, q.in(), k.in(), v.in(), queries, keys, out.view(), nullptr);
  });
  M<float> k5(dev, 5, 6, 5), v5(dev, 5, 6, 6), dout(dev, 5, 12, 7), dq(dev, 5, 12, 8), dk(dev, 5, 6, 9),
      dv(dev, 5, 6, 10);
  const Arena::Scope scope(dev.arena());
  auto saved = kernel::save_attention<float>(dev, 5, 4);
  kernel::attention<D, float>(dev, shape, q.in(), k5.in(), v5.in(), queries, queries, out.view(), &saved);
  check("attention", "attention_backward", 2 * 5 * 4 * 3 * (1 + 2 + 3 + 1 + 2), 4 * (4 * 5 * 12 + 4 * 5 * 6), [&] {
    kernel::attention_backward<D, float>(dev, shape, q.in(), k5.in(), v5.in(), out.in(), queries, saved, dout.in(),
                                         dq.view(), dk.view(), dv.view());
  });
}

TEST_CASE("kernel cost: activation, norms and rotation, with what they write beside their result") {
  Costs check;
  D& dev = check.dev;
  M<bf16> gate_up(dev, 3, 8, 1), y(dev, 3, 4, 2), dy(dev, 3, 4, 3), d_gate_up(dev, 3, 8, 4);
  check("activation", "gated_unit", 0, 2 * (24 + 12),
        [&] { kernel::gated_unit<D, bf16>(dev, kernel::Gate::silu, gate_up.in(), y.view()); });
  check("activation", "gated_unit_backward", 0, 2 * (24 + 12 + 24), [&] {
    kernel::gated_unit_backward<D, bf16>(dev, kernel::Gate::silu, gate_up.in(), dy.in(), d_gate_up.view());
  });
  check("activation", "gated_unit_backward", 0, 2 * (24 + 12 + 24 + 12), [&] {
    kernel::gated_unit_backward<D, bf16>(dev, kernel::Gate::silu, gate_up.in(), dy.in(), d_gate_up.view(), y.view());
  });

  M<bf16> x(dev, 3, 8, 5), z(dev, 3, 8, 6), copy(dev, 3, 8, 7), dx(dev, 3, 8, 8);
  M<float> weight(dev, 1, 4, 9), rstd(dev, 3, 2, 10), dw(dev, 1, 4, 11);
  check("norm", "rms_norm", 0, 2 * 2 * 24,
        [&] { kernel::rms_norm<D, bf16>(dev, x.in(), weight.in(), 1e-6, z.view(), rstd.view()); });
  check("norm", "rms_norm", 0, 2 * 3 * 24,
        [&] { kernel::rms_norm<D, bf16>(dev, x.in(), weight.in(), 1e-6, z.view(), rstd.view(), copy.view()); });
  check("norm", "rms_norm_backward", 0, 2 * 3 * 24,
        [&] { kernel::rms_norm_backward<D, bf16>(dev, x.in(), weight.in(), rstd.in(), z.in(), dx.view(), false); });
  check("norm", "rms_norm_backward", 0, 2 * 5 * 24, [&] {
    kernel::rms_norm_backward<D, bf16>(dev, x.in(), weight.in(), rstd.in(), z.in(), dx.view(), true, copy.view(), 1e-6);
  });
  check("norm", "rms_norm_weight_gradient", 0, 2 * 2 * 24,
        [&] { kernel::rms_norm_weight_gradient<D, bf16>(dev, x.in(), rstd.in(), z.in(), dw.view()); });

  M<float> angles(dev, 3, 2, 12);
  const M<std::int32_t> positions(dev, 1, 3, numbers(3));
  for (const auto rotation : {kernel::Rotation::forward, kernel::Rotation::inverse})
    check("rope", rotation == kernel::Rotation::forward ? "rope" : "rope_backward", 0, 2 * 2 * 24,
          [&] { kernel::rope<D, bf16>(dev, x.in(), angles.in(), angles.in(), positions.in(), rotation, z.view()); });
}

TEST_CASE("kernel cost: elementwise kernels and rows that are gathered") {
  Costs check;
  D& dev = check.dev;
  M<bf16> x(dev, 3, 8, 1), y(dev, 3, 8, 2), two(dev, 2, 8, 3);
  M<float> bias(dev, 1, 8, 4), wide(dev, 3, 8, 5);
  const M<std::int32_t> index(dev, 1, 2, std::vector<std::int32_t>{2, 0}), places(dev, 1, 3, numbers(3));
  check("elementwise", "fill", 0, 2 * 24, [&] { kernel::fill(dev, y.view(), 0.0); });
  check("elementwise", "convert", 0, 4 * 24 + 2 * 24, [&] { kernel::convert(dev, wide.in(), y.view()); });
  check("elementwise", "convert", 0, 2 * 24 + 2 * 4 * 24,
        [&] { kernel::convert(dev, y.in(), wide.view(), 1.0, true); });
  check("elementwise", "add_bias", 0, 2 * 2 * 24, [&] { kernel::add_bias(dev, bias.in(), y.view()); });
  check("elementwise", "gather_rows", 0, 2 * 2 * 16,
        [&] { kernel::gather_rows<D, bf16>(dev, x.in(), index.in(), two.view()); });
  check("elementwise", "scatter_rows", 0, 2 * 2 * 16,
        [&] { kernel::scatter_rows<D, bf16>(dev, two.in(), index.in(), x.view()); });
  for (const bool accumulate : {false, true})
    check("elementwise", "dropout", 0, 2 * (accumulate ? 3 : 2) * 24, [&] {
      kernel::dropout<D, bf16>(dev, {0.5, 1}, x.in(), places.in(), places.in(), y.view(), accumulate);
    });
}

TEST_CASE("kernel cost: embedding, stored weights, sums and steps") {
  Costs check;
  D& dev = check.dev;
  const StoredMatrix<D> blocks(dev, std::vector<std::byte>(3 * 34), DType::q8_0, 3, 32);
  M<float> y(dev, 2, 32, 1), table(dev, 3, 32, 2), wide(dev, 3, 32, 3), b(dev, 2, 3, 4), a(dev, 2, 32, 5);
  const M<std::int32_t> tokens(dev, 1, 2, std::vector<std::int32_t>{2, 2});
  const std::vector<kernel::Segment> segments{{0, 2}};
  check("embedding", "embedding", 0, 4 * 64 + 2 * 34,
        [&] { kernel::embedding(dev, blocks.view(), tokens.in(), y.view()); });
  check("embedding", "embedding_backward", 0, 3 * 4 * 64,
        [&] { kernel::embedding_backward<D, float>(dev, tokens.in(), y.in(), table.view()); });
  check("embedding", "embedding_noise", 0, 2 * 4 * 64, [&] {
    kernel::embedding_noise<D, float>(dev, {1, 1}, segments, tokens.in(), tokens.in(), y.view());
  });
  check("quantize", "decode", 0, 4 * 96 + 3 * 34, [&] { kernel::decode(dev, blocks.view(), wide.view()); });
  check("quantize", "decode_with_update", 2 * 3 * 32 * 2, 4 * (96 + 64 + 6) + 3 * 34,
        [&] { kernel::decode_with_update<D, float>(dev, blocks.view(), b.in(), a.in(), wide.view()); });

  M<float> row(dev, 1, 1500, 6), m(dev, 1, 1500, 7), v(dev, 1, 1500, 8), g(dev, 1, 1500, 9), columns(dev, 1, 32, 10);
  M<double> two(dev, 1, 2, 11), one(dev, 1, 1, 12);
  M<bf16> narrow(dev, 3, 32, 13);
  kernel::fill(dev, v.view(), 1.0);
  check("reduce", "block_sums_of_squares", 0, 4 * 1500,
        [&] { kernel::block_sums_of_squares(dev, row.in(), two.view()); });
  check("reduce", "sum", 0, 4 * 1500, [&] { kernel::sum(dev, row.in(), one.view()); });
  check("reduce", "column_sums", 0, 2 * 96, [&] { kernel::column_sums<D, bf16>(dev, narrow.in(), columns.view()); });
  check("optimizer", "adamw", 0, 4 * 1500 * (1 + 2 * 3),
        [&] { kernel::adamw<float>(dev, kernel::AdamWStep{}, g.in(), row.view(), m.view(), v.view()); });
}

TEST_CASE("kernel cost: the gradients of low-rank factors, all in one call") {
  Costs check;
  D& dev = check.dev;
  M<bf16> x(dev, 4, 8, 1), a(dev, 3, 8, 2), h(dev, 4, 3, 3), dh(dev, 4, 3, 4);
  M<bf16> dy(dev, 4, 5, 5), b(dev, 2, 5, 6), other_dy(dev, 4, 7, 7), other_b(dev, 1, 7, 8);
  M<float> da(dev, 3, 8, 9), db(dev, 2, 5, 10), other_db(dev, 1, 7, 11);
  const std::vector<kernel::LowRankTerm<D, bf16>> terms{{dy.in(), b.in(), db.view(), 1},
                                                        {other_dy.in(), other_b.in(), other_db.view(), 1}};
  constexpr double flops = 4 * (4 * 2 * 5 + 4 * 1 * 7), bytes = 2 * (4 * 5 + 2 * 5 + 4 * 7 + 7) + 2 * 4 * (2 * 5 + 7);
  check("low-rank", "low_rank_backward", flops, bytes + 2 * 2 * 12,
        [&] { kernel::low_rank_backward<D, bf16>(dev, h.in(), terms, dh.view()); });
  check("low-rank", "low_rank_gradients", flops + 4 * 4 * 3 * 8, bytes + 2 * (32 + 24) + 2 * 4 * 24,
        [&] { kernel::low_rank_gradients<D, bf16>(dev, x.in(), a.in(), da.view(), terms); });
}

TEST_CASE("kernel cost: the parts of the loss") {
  Costs check;
  D& dev = check.dev;
  M<float> logits(dev, 3, 6, 1), row(dev, 1, 3, 2), others(dev, 1, 3, 3), target(dev, 1, 3, 4), rounded(dev, 1, 3, 5),
      sums(dev, 3, 8, 6);
  M<bf16> e(dev, 3, 6, 7), w_label(dev, 3, 8, 8), dx(dev, 3, 8, 9);
  const M<std::int32_t> labels(dev, 1, 3, numbers(3));
  check("loss", "softmax_block", 0, (4 + 2) * 18, [&] {
    kernel::softmax_block<bf16, D>(dev, logits.view(), labels.in(), 0, row.view(), others.view(), target.view(),
                                   e.view(), rounded.view(), sums.view());
  });
  check("loss", "softmax_block", 0, 4 * 18, [&] {
    kernel::softmax_block<bf16, D>(dev, logits.view(), labels.in(), 0, row.view(), others.view(), target.view(), {}, {},
                                   {});
  });
  check("loss", "softmax_finish", 0, 2 * 4 * 6,
        [&] { kernel::softmax_finish<bf16, D>(dev, row.in(), others.in(), target.in(), rounded.view()); });
  check("loss", "softmax_gradient", 0, (2 + 4 + 2) * 24, [&] {
    kernel::softmax_gradient<bf16, D>(dev, row.in(), others.in(), target.in(), rounded.in(), w_label.in(), 1.0,
                                      sums.in(), dx.view());
  });
  check("loss", "softmax_logit_gradient", 0, (4 + 2) * 18, [&] {
    kernel::softmax_logit_gradient<bf16, D>(dev, logits.in(), labels.in(), 0, row.in(), others.in(), target.in(), 1.0,
                                            e.view());
  });
}

TEST_CASE("kernel cost: pairs are those below the diagonal, and all keys before the queries") {
  using kernel::visible_pairs;
  const std::vector<kernel::Segment> none, four{{3, 7}}, nine{{10, 19}}, two{{0, 1}, {1, 4}};
  CHECK(visible_pairs(none, none) == 0);
  CHECK(visible_pairs(four, four) == 10);
  CHECK(visible_pairs(four, nine) == 6 + 7 + 8 + 9);
  CHECK(visible_pairs(two, two) == 1 + 6);
  const std::vector<kernel::Segment> tree{{0, 5}, {5, 7, 0}, {7, 8, 1}, {8, 10, 0}};
  CHECK(visible_pairs(tree, tree) == 15 + (6 + 7) + 8 + (6 + 7));
  CHECK(visible_pairs(four, nine, 7) == 6 + 7 + 7 + 7);
  CHECK(visible_pairs(four, nine, 6) == 4 * 6);
  CHECK(visible_pairs(four, nine, 1) == 4);
  CHECK(visible_pairs(four, nine, 9) == 6 + 7 + 8 + 9);
  CHECK(visible_pairs(two, two, 2) == 1 + (1 + 2 + 2));
  CHECK(visible_pairs(tree, tree, 6) == 15 + (6 + 6) + 6 + (6 + 6));
  CHECK(visible_pairs(tree, tree, 3, 6) == 6 + 6);
  CHECK(kernel::Segment{3, 7}.size() == 4);
}

TEST_CASE("kernel cost: what is not said is nothing, and a factor of 1") {
  CHECK((kernel::Dropout{}.p == 0 && kernel::Dropout{}.key == 0));
  CHECK((kernel::DropoutBytes{}.kept == 0 && kernel::DropoutBytes{}.scratch == 0));
  CHECK((kernel::EmbeddingNoise{}.alpha == 0 && kernel::EmbeddingNoise{}.key == 0));
  const kernel::AttentionShape heads;
  CHECK((heads.heads == 0 && heads.kv_heads == 0 && heads.width == 0 && heads.scale == 1 && heads.window == 0));
  CHECK((kernel::LowRankTerm<D, float>{}.scale == 1));
  const kernel::AdamWStep step;
  CHECK((step.learning_rate == 0 && step.beta1 == 0.9 && step.beta2 == 0.999 && step.epsilon == 1e-8));
  CHECK((step.weight_decay == 0 && step.gradient_scale == 1 && step.step == 1));
  CHECK((kernel::BufferSettings{}.threads == 1 && !kernel::BufferSettings{}.sums_apart));
  const kernel::PassExtents extents;
  CHECK((extents.rows == 0 && extents.kv_heads == 0 && extents.head_dim == 0));
  CHECK((extents.widest == 0 && extents.factors == 0));
  CHECK(kernel::Segment{}.size() == 0);
  CHECK(kernel::sum_block == 1024);
}

}  // namespace kernel_cost_test
