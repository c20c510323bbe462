// Each operand of a kernel has the extents that its description says: one that has others is named before anything is
// read or written.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"

namespace kernel_shapes_test {

namespace {

using namespace lora;
using D = cpu::Device;
using In = View<D, const float>;
using Out = View<D, float>;
template <class T>
using M = test::Matrix<D, T>;

std::vector<std::int32_t> numbers(std::int32_t count) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < count; ++i) result.push_back(i);
  return result;
}

/// Operands by place: calls `call` with all as they should be, then with each in turn replaced by `wrong`.
void check_operands(std::vector<Out> operands, const std::vector<std::string_view>& names, const Out& wrong,
                    const std::function<void(const std::vector<Out>&)>& call) {
  REQUIRE(operands.size() == names.size());
  CHECK_NOTHROW(call(operands));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    CAPTURE(names[i]);
    auto broken = operands;
    broken[i] = wrong;
    const std::string message = test::message_of<ShapeError>([&] { call(broken); });
    const std::string name = names[i].starts_with("[") ? std::string(names[i]) : concat("] ", names[i]);
    CHECK_MESSAGE(test::holds(message, name + " is (7, 5)"), message);
  }
}

}  // namespace

TEST_CASE("kernel shapes: attention and its gradient name the operand that does not fit") {
  D dev(1);
  const Arena::Scope scope(dev.arena());
  const kernel::AttentionShape shape{4, 2, 3, 1};
  const std::vector<kernel::Segment> segments = {{0, 6}};
  test::Matrix<D, float> q(dev, 6, 12, 1), k(dev, 6, 6, 2), v(dev, 6, 6, 3), out(dev, 6, 12, 4), wrong(dev, 7, 5, 5);
  auto saved = kernel::save_attention<float>(dev, 6, 4);
  // Segments lie within their rows, and a query never has fewer keys than queries before it and itself.
  const auto refusal = [&](const kernel::AttentionShape& heads, std::vector<kernel::Segment> queries,
                           std::vector<kernel::Segment> keys) {
    return test::message_of<ShapeError>(
        [&] { kernel::attention<D, float>(dev, heads, q.in(), k.in(), v.in(), queries, keys, out.view(), &saved); });
  };
  CHECK(test::holds(refusal({4, 3, 3, 1}, segments, segments), "[attention] 4 heads can't share 3 key heads"));
  CHECK(test::holds(refusal({4, 0, 3, 1}, segments, segments), "4 heads can't share 0 key heads"));
  CHECK(test::holds(refusal(shape, segments, {{0, 3}, {3, 6}}), "1 query segments but 2 key segments"));
  using Segments = std::vector<kernel::Segment>;
  for (const auto& [queries, keys] : {std::pair(Segments{{0, 7}}, Segments{{0, 7}}),
                                      {Segments{{-1, 2}}, Segments{{0, 6}}},
                                      {Segments{{3, 2}}, Segments{{0, 6}}},
                                      {Segments{{0, 4}}, Segments{{0, 3}}},
                                      {Segments{{0, 2}}, Segments{{5, 7}}},
                                      {Segments{{0, 2}}, Segments{{-1, 3}}}})
    CHECK(refusal(shape, queries, keys) == concat("[attention] segment 0: query rows ", queries[0].begin, "..",
                                                  queries[0].end, " of 6, key rows ", keys[0].begin, "..", keys[0].end,
                                                  " of 6"));
  CHECK(refusal(shape, {{0, 3}, {3, 5}}, {{0, 3}, {4, 5}}) ==
        "[attention] segment 1: query rows 3..5 of 6, key rows 4..5 of 6");
  check_operands({q.view(), k.view(), v.view(), out.view()},
                 {"[attention] q", "[attention] k", "[attention] v", "[attention] out"}, wrong.view(),
                 [&](const std::vector<Out>& x) {
                   kernel::attention<D, float>(dev, shape, In(x[0]), In(x[1]), In(x[2]), segments, segments, x[3],
                                               &saved);
                 });
  test::Matrix<D, float> dout(dev, 6, 12, 6), dq(dev, 6, 12, 7), dk(dev, 6, 6, 8), dv(dev, 6, 6, 9);
  check_operands(
      {q.view(), k.view(), v.view(), out.view(), dout.view(), dq.view(), dk.view(), dv.view()},
      {"[attention_backward] q", "[attention_backward] k", "[attention_backward] v", "[attention_backward] out",
       "[attention_backward] dout", "[attention_backward] dq", "[attention_backward] dk", "[attention_backward] dv"},
      wrong.view(), [&](const std::vector<Out>& x) {
        kernel::attention_backward<D, float>(dev, shape, In(x[0]), In(x[1]), In(x[2]), In(x[3]), segments, saved,
                                             In(x[4]), x[5], x[6], x[7]);
      });
}

TEST_CASE("kernel shapes: the parts of the loss name the operand that does not fit") {
  D dev(1);
  constexpr Index n = 4, width = 6;
  test::Matrix<D, float> row(dev, 1, n, 1), block(dev, n, width, 2), wrong(dev, 7, 5, 3);
  const test::Matrix<D, std::int32_t> labels(dev, 1, n, std::vector<std::int32_t>{0, 1, 2, 3});
  const test::Matrix<D, std::int32_t> few(dev, 1, 3, std::vector<std::int32_t>{0, 1, 2});
  const Out r = row.view(), b = block.view();
  check_operands({r, r, r, b, r, b},
                 {"[softmax_block] top", "[softmax_block] others", "[softmax_block] target", "[softmax_block] e",
                  "[softmax_block] rounded", "[softmax_block] sums"},
                 wrong.view(), [&](const std::vector<Out>& x) {
                   kernel::softmax_block<float, D>(dev, b, labels.in(), 0, x[0], x[1], x[2], x[3], x[4], x[5]);
                 });
  check_operands(
      {r, r, r}, {"[softmax_finish] others", "[softmax_finish] target", "[softmax_finish] loss"}, wrong.view(),
      [&](const std::vector<Out>& x) { kernel::softmax_finish<float, D>(dev, In(r), In(x[0]), In(x[1]), x[2]); });
  check_operands({r, r, r, r, b, b},
                 {"[softmax_gradient] top", "[softmax_gradient] others", "[softmax_gradient] target",
                  "[softmax_gradient] rounded", "[softmax_gradient] w_label", "[softmax_gradient] sums"},
                 wrong.view(), [&](const std::vector<Out>& x) {
                   kernel::softmax_gradient<float, D>(dev, In(x[0]), In(x[1]), In(x[2]), In(x[3]), In(x[4]), 1.0,
                                                      In(x[5]), b);
                 });
  check_operands({r, r, r, b},
                 {"[softmax_logit_gradient] top", "[softmax_logit_gradient] others", "[softmax_logit_gradient] target",
                  "[softmax_logit_gradient] dl"},
                 wrong.view(), [&](const std::vector<Out>& x) {
                   kernel::softmax_logit_gradient<float, D>(dev, In(b), labels.in(), 0, In(x[0]), In(x[1]), In(x[2]),
                                                            1.0, x[3]);
                 });
  CHECK_THROWS_AS((kernel::softmax_block<float, D>(dev, b, few.in(), 0, r, r, r, b, r, b)), ShapeError);
  CHECK_THROWS_AS((kernel::softmax_logit_gradient<float, D>(dev, In(b), few.in(), 0, In(r), In(r), In(r), 1.0, b)),
                  ShapeError);
}

// What the tables of a profile tell of memory: each operand once, in the bytes of its own type, one that is added to
// twice.
TEST_CASE("kernel shapes: a profile counts the bytes of each operand in its own type") {
  D dev(1);
  test::Matrix<D, float> a(dev, 2, 3, 1), b(dev, 3, 5, 2), c(dev, 2, 5, 3), wide(dev, 4, 8, 4);
  test::Matrix<D, bf16> narrow(dev, 4, 8, 5), gate_up(dev, 4, 16, 6);
  const auto bytes_of = [&](const std::function<void()>& call) {
    Profile profile;
    dev.set_profile(&profile);
    {
      const ProfileScope step(dev, Profile::Kind::step, "step");
      call();
    }
    dev.set_profile(nullptr);
    REQUIRE(profile.nodes().size() == 3);
    return profile.nodes().back().bytes;
  };
  const auto gemm = [&](bool accumulate) {
    return bytes_of([&] { kernel::gemm(dev, kernel::Form::nn, a.in(), b.in(), c.view(), 1.0, accumulate); });
  };
  CHECK(gemm(false) == 4 * (2 * 3 + 3 * 5 + 2 * 5));
  CHECK(gemm(true) == 4 * (2 * 3 + 3 * 5 + 2 * 2 * 5));
  CHECK(bytes_of([&] { kernel::convert(dev, wide.in(), narrow.view()); }) == 4 * 32 + 2 * 32);
  CHECK(bytes_of([&] { kernel::gated_unit<D, bf16>(dev, kernel::Gate::silu, gate_up.in(), narrow.view()); }) ==
        2 * (64 + 32));
}

TEST_CASE("kernel shapes: operands of norms, activation, rotation, factors, steps and sums that do not fit are named") {
  D dev(1);
  M<float> wrong(dev, 7, 5, 1), x(dev, 3, 8, 2), y(dev, 3, 8, 3), z(dev, 3, 8, 4), half(dev, 3, 4, 5),
      weight(dev, 1, 4, 6), rstd(dev, 3, 2, 7), dw(dev, 1, 4, 8), angles(dev, 3, 2, 9), sin(dev, 3, 2, 10);
  const auto w = wrong.view();
  const auto told = [](auto&& call) { return test::message_of<ShapeError>(call); };
  M<float> five(dev, 1, 5, 23);
  CHECK(told([&] { kernel::rms_norm<D, float>(dev, x.in(), five.in(), 1e-6, y.view(), {}); }) ==
        "[rms_norm] x is (3, 8) but the weight has 5 columns");
  CHECK(told([&] { kernel::rms_norm<D, float>(dev, x.in(), In(), 1e-6, y.view(), {}); }) ==
        "[rms_norm] x is (3, 8) but the weight has 0 columns");
  CHECK(told([&] {
          kernel::rms_norm_backward<D, float>(dev, x.in(), five.in(), rstd.in(), y.in(), z.view(), false);
        }) == "[rms_norm_backward] x is (3, 8) but the weight has 5 columns");
  CHECK(told([&] { kernel::rms_norm_backward<D, float>(dev, x.in(), In(), rstd.in(), y.in(), z.view(), false); }) ==
        "[rms_norm_backward] x is (3, 8) but the weight has 0 columns");
  CHECK(told([&] { kernel::rms_norm_weight_gradient<D, float>(dev, x.in(), rstd.in(), y.in(), five.view()); }) ==
        "[rms_norm_weight_gradient] x is (3, 8) but the weight has 5 columns");
  CHECK(told([&] { kernel::rms_norm_weight_gradient<D, float>(dev, x.in(), rstd.in(), y.in(), {}); }) ==
        "[rms_norm_weight_gradient] x is (3, 8) but the weight has 0 columns");
  check_operands(
      {y.view(), rstd.view(), z.view()}, {"[rms_norm] y", "[rms_norm] rstd", "[rms_norm] copy"}, w,
      [&](const std::vector<Out>& o) { kernel::rms_norm<D, float>(dev, x.in(), weight.in(), 1e-6, o[0], o[1], o[2]); });
  check_operands({rstd.view(), y.view(), z.view()},
                 {"[rms_norm_backward] rstd", "[rms_norm_backward] dy", "[rms_norm_backward] dx"}, w,
                 [&](const std::vector<Out>& o) {
                   kernel::rms_norm_backward<D, float>(dev, x.in(), weight.in(), In(o[0]), In(o[1]), o[2], false);
                 });
  check_operands({x.view()}, {"[rms_norm_backward] y"}, w, [&](const std::vector<Out>& o) {
    kernel::rms_norm_backward<D, float>(dev, x.in(), weight.in(), rstd.in(), y.in(), z.view(), false, o[0], 1e-6);
  });
  check_operands({rstd.view(), y.view()}, {"[rms_norm_weight_gradient] rstd", "[rms_norm_weight_gradient] dy"}, w,
                 [&](const std::vector<Out>& o) {
                   kernel::rms_norm_weight_gradient<D, float>(dev, x.in(), In(o[0]), In(o[1]), dw.view());
                 });
  check_operands({x.view()}, {"[gated_unit] gate_up"}, w, [&](const std::vector<Out>& o) {
    kernel::gated_unit<D, float>(dev, kernel::Gate::silu, In(o[0]), half.view());
  });
  check_operands({x.view(), y.view(), half.view()},
                 {"[gated_unit_backward] gate_up", "[gated_unit_backward] d_gate_up", "[gated_unit_backward] y"}, w,
                 [&](const std::vector<Out>& o) {
                   kernel::gated_unit_backward<D, float>(dev, kernel::Gate::silu, In(o[0]), half.in(), o[1], o[2]);
                 });
  const M<std::int32_t> positions(dev, 1, 3, numbers(3)), two(dev, 1, 2, numbers(2));
  check_operands({sin.view(), y.view()}, {"[rope] sin", "[rope] y"}, w, [&](const std::vector<Out>& o) {
    kernel::rope<D, float>(dev, x.in(), angles.in(), In(o[0]), positions.in(), kernel::Rotation::forward, o[1]);
  });
  CHECK(told([&] {
          kernel::rope<D, float>(dev, x.in(), angles.in(), sin.in(), two.in(), kernel::Rotation::forward, y.view());
        }) == "[rope] positions is (1, 2) but (1, 3) was expected");

  M<float> value(dev, 1, 6, 11), m(dev, 1, 6, 12), v(dev, 1, 6, 13), g(dev, 1, 6, 14);
  kernel::fill(dev, v.view(), 1.0);
  check_operands({g.view(), m.view(), v.view()}, {"[adamw] grad", "[adamw] m", "[adamw] v"}, w,
                 [&](const std::vector<Out>& o) {
                   kernel::adamw<float>(dev, kernel::AdamWStep{}, In(o[0]), value.view(), o[1], o[2]);
                 });
  M<double> sums(dev, 1, 2, 15);
  CHECK(told([&] { kernel::sum(dev, value.in(), sums.view()); }) == "[sum] out is (1, 2) but (1, 1) was expected");
  CHECK(told([&] { kernel::block_sums_of_squares(dev, value.in(), sums.view()); }) ==
        "[block_sums_of_squares] out is (1, 2) but (1, 1) was expected");
  CHECK(told([&] { kernel::block_sums_of_squares(dev, x.in(), sums.view()); }) ==
        "[block_sums_of_squares] x is (3, 8) but (1, 24) was expected");
  CHECK(told([&] { kernel::column_sums<D, float>(dev, x.in(), w); }) ==
        "[column_sums] out is (7, 5) but (1, 8) was expected");

  M<float> h(dev, 3, 2, 17), dh(dev, 3, 2, 18), b(dev, 2, 4, 19), db(dev, 2, 4, 20), a(dev, 2, 8, 21),
      da(dev, 2, 8, 22);
  const auto terms_of = [&](const Out& dy, const Out& own_db) {
    return std::vector<kernel::LowRankTerm<D, float>>{{In(dy), b.in(), own_db, 1}};
  };
  CHECK(told([&] {
          kernel::low_rank_backward<D, float>(dev, half.in(), terms_of(half.view(), db.view()), dh.view());
        }) == "[low_rank_backward] h is (3, 4) but (3, 2) was expected");
  check_operands(
      {half.view(), db.view(), dh.view()},
      {"[low_rank_backward] dy", "[low_rank_backward] db", "[low_rank_backward] dh"}, w,
      [&](const std::vector<Out>& o) { kernel::low_rank_backward<D, float>(dev, h.in(), terms_of(o[0], o[1]), o[2]); });
  check_operands(
      {a.view(), da.view(), half.view(), db.view()},
      {"[low_rank_gradients] a", "[low_rank_gradients] da", "[low_rank_gradients] dy", "[low_rank_gradients] db"}, w,
      [&](const std::vector<Out>& o) {
        kernel::low_rank_gradients<D, float>(dev, x.in(), In(o[0]), o[1], terms_of(o[2], o[3]));
      });
}

TEST_CASE("kernel shapes: operands of elementwise kernels, embeddings and products that do not fit are named") {
  D dev(1);
  M<float> wrong(dev, 7, 5, 1), x(dev, 3, 8, 2), y(dev, 3, 8, 3), bias(dev, 1, 8, 4), two_rows(dev, 2, 8, 5);
  const M<std::int32_t> two(dev, 1, 2, numbers(2)), three(dev, 1, 3, numbers(3));
  const auto w = wrong.view();
  const auto told = [](auto&& call) { return test::message_of<ShapeError>(call); };
  CHECK(told([&] { kernel::convert(dev, x.in(), w); }) == "[convert] y is (7, 5) but (3, 8) was expected");
  CHECK(told([&] { kernel::add_bias(dev, In(w), y.view()); }) == "[add_bias] bias is (7, 5) but (1, 8) was expected");
  CHECK(told([&] { kernel::gather_rows<D, float>(dev, x.in(), three.in(), two_rows.view()); }) ==
        "[gather_rows] index is (1, 3) but (1, 2) was expected");
  CHECK(told([&] { kernel::gather_rows<D, float>(dev, In(w), two.in(), two_rows.view()); }) ==
        "[gather_rows] y is (2, 8) but (2, 5) was expected");
  CHECK(told([&] { kernel::scatter_rows<D, float>(dev, two_rows.in(), three.in(), y.view()); }) ==
        "[scatter_rows] index is (1, 3) but (1, 2) was expected");
  CHECK(told([&] { kernel::scatter_rows<D, float>(dev, two_rows.in(), two.in(), w); }) ==
        "[scatter_rows] x is (2, 8) but (2, 5) was expected");
  CHECK(told([&] { kernel::dropout<D, float>(dev, {}, x.in(), two.in(), three.in(), y.view()); }) ==
        "[dropout] sequence_index is (1, 2) but (1, 3) was expected");
  CHECK(told([&] { kernel::dropout<D, float>(dev, {}, x.in(), three.in(), two.in(), y.view()); }) ==
        "[dropout] positions is (1, 2) but (1, 3) was expected");
  CHECK(told([&] { kernel::dropout<D, float>(dev, {}, x.in(), three.in(), three.in(), w); }) ==
        "[dropout] y is (7, 5) but (3, 8) was expected");
  CHECK(told([&] { kernel::draw_dropout(dev, {}, three.in(), two.in(), 8, false); }) ==
        "[draw_dropout] positions is (1, 2) but (1, 3) was expected");

  const test::StoredMatrix<D> table(dev, std::vector<std::byte>(5 * 32), DType::f32, 5, 8);
  CHECK(told([&] { kernel::embedding(dev, table.view(), three.in(), two_rows.view()); }) ==
        "[embedding] tokens is (1, 3) but (1, 2) was expected");
  CHECK(told([&] { kernel::embedding(dev, table.view(), two.in(), M<float>(dev, 2, 5, 6).view()); }) ==
        "[embedding] y is (2, 5) but (2, 8) was expected");
  CHECK(told([&] { kernel::embedding_backward<D, float>(dev, two.in(), x.in(), y.view()); }) ==
        "[embedding_backward] tokens is (1, 2) but (1, 3) was expected");
  CHECK(told([&] { kernel::embedding_backward<D, float>(dev, three.in(), x.in(), w); }) ==
        "[embedding_backward] dtable is (7, 5) but (7, 8) was expected");
  const std::vector<kernel::Segment> segments{{0, 3}};
  CHECK(told([&] { kernel::embedding_noise<D, float>(dev, {}, segments, two.in(), three.in(), y.view()); }) ==
        "[embedding_noise] sequence_index is (1, 2) but (1, 3) was expected");
  CHECK(told([&] { kernel::embedding_noise<D, float>(dev, {}, segments, three.in(), two.in(), y.view()); }) ==
        "[embedding_noise] positions is (1, 2) but (1, 3) was expected");

  M<float> b(dev, 2, 5, 7), a(dev, 2, 8, 8), five(dev, 5, 8, 9);
  CHECK(told([&] { kernel::decode(dev, table.view(), w); }) == "[decode] y is (7, 5) but (5, 8) was expected");
  CHECK(told([&] { kernel::decode_with_update<D, float>(dev, table.view(), b.in(), a.in(), w); }) ==
        "[decode_with_update] y is (7, 5) but (5, 8) was expected");
  CHECK(told([&] { kernel::decode_with_update<D, float>(dev, table.view(), In(w), a.in(), five.view()); }) ==
        "[decode_with_update] b is (7, 5) but (2, 5) was expected");
  CHECK(told([&] { kernel::decode_with_update<D, float>(dev, table.view(), b.in(), b.in(), five.view()); }) ==
        "[decode_with_update] a is (2, 5) but (2, 8) was expected");

  CHECK(told([&] { kernel::gemm(dev, kernel::Form::nt, x.in(), y.in(), w); }) ==
        "[gemm] c is (7, 5) but (3, 3) was expected");
  CHECK(told([&] { kernel::gemm(dev, kernel::Form::tn, x.in(), y.in(), w); }) ==
        "[gemm] c is (7, 5) but (8, 8) was expected");
  CHECK(told([&] { kernel::gemm(dev, kernel::Form::nt, x.in(), In(w), y.view()); }) ==
        "[gemm] a is (3, 8) but b is (7, 5); inner extents differ");
  CHECK(told([&] { kernel::gemm(dev, kernel::Form::tn, x.in(), two_rows.in(), y.view()); }) ==
        "[gemm] a is (3, 8) but b is (2, 8); inner extents differ");
  CHECK(told([&] { kernel::sum_of_products<D, float>(dev, {}, {}, y.view()); }) ==
        "[sum_of_products] no product is given");
  const kernel::ProductTerm<D, float> term{kernel::Form::nt, x.in(), y.in()};
  M<float> c(dev, 3, 3, 10);
  CHECK(told([&] {
          kernel::sum_of_products<D, float>(dev, {&term, 1}, bias.in(), c.view());
        }) == "[sum_of_products] bias is (1, 8) but (1, 3) was expected");
  CHECK(told([&] {
          kernel::sum_of_products<D, float>(dev, {&term, 1}, {}, w);
        }) == "[sum_of_products] c is (7, 5) but (3, 3) was expected");
}

}  // namespace kernel_shapes_test
