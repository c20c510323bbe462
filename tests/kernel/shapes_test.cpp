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
    CHECK_MESSAGE(test::holds(message, std::string("] ") + std::string(names[i]) + " is (7, 5)"), message);
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
    CHECK(test::holds(refusal(shape, queries, keys), "[attention] segment 0: query rows "));
  check_operands(
      {q.view(), k.view(), v.view(), out.view()}, {"q", "k", "v", "out"}, wrong.view(), [&](const std::vector<Out>& x) {
        kernel::attention<D, float>(dev, shape, In(x[0]), In(x[1]), In(x[2]), segments, segments, x[3], &saved);
      });
  test::Matrix<D, float> dout(dev, 6, 12, 6), dq(dev, 6, 12, 7), dk(dev, 6, 6, 8), dv(dev, 6, 6, 9);
  check_operands({q.view(), k.view(), v.view(), out.view(), dout.view(), dq.view(), dk.view(), dv.view()},
                 {"q", "k", "v", "out", "dout", "dq", "dk", "dv"}, wrong.view(), [&](const std::vector<Out>& x) {
                   kernel::attention_backward<D, float>(dev, shape, In(x[0]), In(x[1]), In(x[2]), In(x[3]), segments,
                                                        saved, In(x[4]), x[5], x[6], x[7]);
                 });
}

TEST_CASE("kernel shapes: the parts of the loss name the operand that does not fit") {
  D dev(1);
  constexpr Index n = 4, width = 6;
  test::Matrix<D, float> row(dev, 1, n, 1), block(dev, n, width, 2), wrong(dev, 7, 5, 3);
  const test::Matrix<D, std::int32_t> labels(dev, 1, n, std::vector<std::int32_t>{0, 1, 2, 3});
  const test::Matrix<D, std::int32_t> few(dev, 1, 3, std::vector<std::int32_t>{0, 1, 2});
  const Out r = row.view(), b = block.view();
  check_operands({r, r, r, b, r, b}, {"top", "others", "target", "e", "rounded", "sums"}, wrong.view(),
                 [&](const std::vector<Out>& x) {
                   kernel::softmax_block<float, D>(dev, b, labels.in(), 0, x[0], x[1], x[2], x[3], x[4], x[5]);
                 });
  check_operands({r, r, r}, {"others", "target", "loss"}, wrong.view(), [&](const std::vector<Out>& x) {
    kernel::softmax_finish<float, D>(dev, In(r), In(x[0]), In(x[1]), x[2]);
  });
  check_operands({r, r, r, r, b, b}, {"top", "others", "target", "rounded", "w_label", "sums"}, wrong.view(),
                 [&](const std::vector<Out>& x) {
                   kernel::softmax_gradient<float, D>(dev, In(x[0]), In(x[1]), In(x[2]), In(x[3]), In(x[4]), 1.0,
                                                      In(x[5]), b);
                 });
  check_operands({r, r, r, b}, {"top", "others", "target", "dl"}, wrong.view(), [&](const std::vector<Out>& x) {
    kernel::softmax_logit_gradient<float, D>(dev, In(b), labels.in(), 0, In(x[0]), In(x[1]), In(x[2]), 1.0, x[3]);
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
      const Span step(dev, Profile::Kind::step, "step");
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
  CHECK(bytes_of([&] { kernel::swiglu<D, bf16>(dev, gate_up.in(), narrow.view()); }) == 2 * (64 + 32));
}

}  // namespace kernel_shapes_test
