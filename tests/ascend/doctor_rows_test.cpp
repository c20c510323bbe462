// What doctor --full checks on an NPU, where one of the backend's ways, or the library under it, is broken on purpose.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/doctor/facts.hpp"
#include "lora/doctor/kernel_rows.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/stand_in.hpp"

namespace ascend_doctor_rows_test {

namespace {

using namespace lora;
using namespace lora::doctor;
using namespace lora::test;
using Npu = ascend::Device;
namespace rows = doctor::detail;

/// Rows of a check whose kernels are these, on the device and on the processors.
template <class T, class Kernels, class Reference>
std::vector<KernelRow> checked(Npu& dev, const Kernels& kernels, const Reference& reference, bool& repeats) {
  cpu::Device processors(1);
  const Case<Npu, T> one{"family", "kernel", kernels, reference};
  return check_case<Npu, T>(one, dev, processors, Sizes(), repeats);
}
template <class T, class Kernels>
std::vector<KernelRow> checked(Npu& dev, const Kernels& kernels) {
  bool repeats = false;
  const std::vector<KernelRow> all = checked<T>(dev, kernels, kernels, repeats);
  CHECK(repeats);
  return all;
}

State state_of(const std::vector<KernelRow>& all, std::string_view output) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const KernelRow& row) { return row.output == output; });
  REQUIRE(found != all.end());
  return found->state;
}
bool all_ok(const std::vector<KernelRow>& all) {
  return std::all_of(all.begin(), all.end(), [](const KernelRow& row) { return row.state == State::ok; });
}

std::string fact_of(Npu& dev, std::string_view what) {
  std::vector<Fact> facts;
  add_device(dev, facts);
  const auto found = std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.what == what; });
  return found == facts.end() ? "nothing" : found->found;
}

/// A norm of heads whose operator is given the columns of a wider matrix to write to.
constexpr auto norm_into_columns = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, width = t.sizes.heads * t.sizes.wide_head, group = t.sizes.wide_head;
  const View<D, const T> x = t.apart(n, width, -3, 3);
  const View<D, const Accum<T>> w = t.sums(1, group, 0.5, 1.5);
  const View<D, T> y = t.apart(n, width);
  const View<D, Accum<T>> rstd = t.sums_room(n, width / group);
  t.launch([&] {
    if constexpr (std::same_as<D, Npu>) {
      const Index heads = width / group;
      ascend::launch(t.dev, t.dev.toolkit().operators.rms_norm, ascend::heads(x, heads), ascend::vector(w), 1e-6,
                     ascend::heads(y, heads),
                     ascend::Operand(rstd.data(), ascend::ACL_FLOAT, {n, heads, 1}, {heads, 1, 1}));
    } else {
      kernel::rms_norm<D, T>(t.dev, x, w, 1e-6, y, rstd);
    }
  });
  t.result("y", y, rows::few);
};

/// Dropout whose operator is told the share of zeros, and rounds what is left to the elements' type.
constexpr auto dropout_as_told = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, cols = t.sizes.width;
  const kernel::Dropout rule{0.1, 0x5EED};
  std::vector<std::int32_t> places, sequence(static_cast<std::size_t>(n), 3);
  for (Index i = 0; i < n; ++i) places.push_back(static_cast<std::int32_t>(i));
  const View<D, const T> x = t.values(n, cols, 1, 2);
  const View<D, T> y = t.room(n, cols);
  const auto sequence_index = t.numbers(sequence), positions = t.numbers(places);
  t.launch([&] {
    if constexpr (std::same_as<D, Npu>) {
      const auto bits = kernel::draw_dropout(t.dev, rule, sequence_index, positions, cols, false);
      ascend::launch(t.dev, t.dev.toolkit().operators.dropout_do_mask, x, ascend::vector(bits.drawn), rule.p, y);
    } else {
      kernel::dropout<D, T>(t.dev, rule, x, sequence_index, positions, y);
    }
  });
  t.result("y", y, rows::few);
  t.mean_result("mean of what is kept", y, 1e-4);
};

}  // namespace

TEST_CASE("ascend doctor: results with gaps are as others are, and an operator that writes over them is seen") {
  on_stand_in([] {
    const StandInSetting gaps("gaps", 1, 0);  // as the vendor's operators write
    Npu dev;
    CHECK(all_ok(checked<float>(dev, rows::rms_norm<true>)));
    CHECK(all_ok(checked<bf16>(dev, rows::rms_norm<true>)));
    CHECK(all_ok(checked<bf16>(dev, rows::gated_unit<kernel::Gate::silu>)));
    CHECK(all_ok(checked<bf16>(dev, rows::rope<kernel::Rotation::forward>)));
    CHECK(state_of(checked<float>(dev, norm_into_columns), "y") == State::too_far);
    CHECK(state_of(checked<bf16>(dev, norm_into_columns), "y") == State::too_far);
  });
}

TEST_CASE("ascend doctor: dropout's scale is exact, and one that is rounded is seen though each result is near") {
  on_stand_in([] {
    Npu dev;
    CHECK(all_ok(checked<float>(dev, rows::dropout<false>)));
    CHECK(all_ok(checked<bf16>(dev, rows::dropout<false>)));
    CHECK(all_ok(checked<f16>(dev, rows::dropout<false>)));
    CHECK(all_ok(checked<bf16>(dev, rows::dropout<true>)));
    const auto rounded = checked<bf16>(dev, dropout_as_told);
    CHECK(state_of(rounded, "y") == State::ok);
    CHECK(state_of(rounded, "mean of what is kept") == State::too_far);
  });
}

TEST_CASE("ascend doctor: backward of attention in float32 goes with the mask that the operator takes") {
  on_stand_in([] {
    Npu dev;
    CHECK(all_ok(checked<float>(dev, rows::attention<false, true>)));
  });
}

TEST_CASE("ascend doctor: sums in an order of their own are seen, whichever option the framework looks at") {
  on_stand_in([] {
    const auto repeated = [](Npu& dev) {
      bool repeats = false, other = false;
      (void)checked<float>(dev, rows::rms_norm_weight_gradient, rows::rms_norm_weight_gradient, repeats);
      (void)checked<float>(dev, rows::embedding_backward, rows::embedding_backward, other);
      CHECK(repeats == other);
      return repeats;
    };
    for (const int looks_at : {1, 2, 3}) {
      CAPTURE(looks_at);
      if (looks_at != 2 && !effort(true, false, "ascend doctor: two of three options of the order of sums")) continue;
      const StandInSetting order("order_of_sums", looks_at, 3);
      {
        Npu dev;
        CHECK(repeated(dev));
        CHECK(fact_of(dev, "fixed order of sums") == "asked for");
        if (looks_at > 1) {
          REQUIRE(stand_in<int(int, std::int64_t)>("aclrtSetSysParamOpt")(ascend::ACL_OPT_DETERMINISTIC, 0) == 0);
          CHECK_FALSE(repeated(dev));
        }
      }
      Npu free(ascend::DeviceSettings{.deterministic = false});
      CHECK_FALSE(repeated(free));
    }
  });
}

TEST_CASE("ascend doctor: products that are rounded and widened are told") {
  on_stand_in([] {
    const Quiet quiet;
    for (const bool rounds : {false, true}) {
      const StandInSetting wide("fp32_output", rounds ? 3 : 1, 1);
      Npu dev;
      for (const char* type : {"bfloat16", "float16"})
        CHECK(fact_of(dev, concat("float32 results of ", type, " products")) == (rounds ? "not written" : "written"));
      CHECK(quiet.said("[ascend] NPU 0: the operator Mm gives wrong float32 results, 2048 as the sum of 2049 ones; "
                       "products of bfloat16 are rounded to it before they are added up in float32\n") == rounds);
    }
  });
}

TEST_CASE("ascend doctor: the toolkit, its operators and what was asked of them are told, each in its line") {
  on_stand_in([] {
    const auto told = [](Npu& dev) {
      std::vector<Fact> facts;
      add_device(dev, facts);
      std::string text;
      for (const Fact& fact : facts) text += concat(fact.what, ": ", fact.found, "\n");
      return text;
    };
    const std::string folder = LORA_STAND_IN, version = "CANN: 8.1.RC1\nruntime interface: 1.13.0\n",
                      libraries = "runtime: " + folder + "/libascendcl.so\noperators in: " + folder +
                                  "/libnnopbase.so, " + folder + "/libopapi.so\n",
                      products =
                          "float32 results of bfloat16 products: written\n"
                          "float32 results of float16 products: written\n";
    {
      Npu dev;
      CHECK(told(dev) == version + libraries + "operators: 32 of 32\nwork memory: grows by virtual memory, up to " +
                             size_text(dev.memory().total) +
                             "\nwork behind what has failed: thrown away\nfixed order of sums: asked for\n" + products);
    }
    const Environment without("LORA_ASCEND_WITHOUT", "RotaryPositionEmbedding");
    const Quiet quiet;
    const StandInSetting fixed("vmm", 0, 1);
    ascend::Toolkit toolkit;
    toolkit.runtime.aclrtGetVersion = [](std::int32_t*, std::int32_t*, std::int32_t*) { return 7; };
    Npu dev(ascend::DeviceSettings{.deterministic = false}, toolkit);
    CHECK(told(dev) ==
          "CANN: 8.1.RC1\nruntime interface: the toolkit doesn't tell\n" + libraries +
              "without RotaryPositionEmbedding: done by Mul and InplaceAddcmul\noperators: 31 of 32\nwork memory: has "
              "a fixed share: " +
              size_text(dev.arena().capacity()) +
              "\nwork behind what has failed: thrown away\nfixed order of sums: not asked for\n" + products);
    CHECK(dev.arena().capacity() == dev.memory().total / 2);
  });
}

TEST_CASE("ascend doctor: kernels whose bits are others when they run again are listed") {
  on_stand_in([] {
    const auto make = [] { return Npu(ascend::DeviceSettings{.deterministic = false}); };
    Sizes sizes;
    sizes.rows = 100;
    sizes.width = 64;
    sizes.out = 32;
    sizes.vocabulary = 40;
    sizes.parameters = 1500;
    sizes.sequences = {1, 5, 2};
    HeldDevice<decltype(make)> device(make);
    cpu::Device reference(1);
    Report report;
    std::string unrepeated;
    check_kernels<float>(device, reference, sizes, report, unrepeated, [](const std::string&) {});
    CHECK(unrepeated ==
          "norm, weight gradient in float32; attention, heads of 64, backward in float32; attention, heads of 64, a "
          "tree, backward in float32; attention, heads of 128, backward in float32; embedding, backward in float32");
    for (const KernelRow& row : report.kernels) CHECK(row.state == State::ok);
  });
}

TEST_CASE("ascend doctor: streams that go on after a fault are told") {
  on_stand_in([] {
    const std::string_view what = "work behind what has failed";
    {
      Npu dev;
      CHECK(fact_of(dev, what) == "thrown away");
    }
    const Quiet quiet;
    const StandInSetting refused("failure_mode", 0, 1);
    Npu dev;
    CHECK(fact_of(dev, what) == "**goes on**");
    CHECK(
        quiet.said("[ascend] NPU 0: streams go on after work that has failed: error 207000 (E207000: "
                   "aclrtSetStreamFailureMode: not supported)\n"));
  });
}

TEST_CASE("ascend doctor: a kernel that is refused while streams run leaves the device as it was") {
  on_stand_in([] {
    Npu dev;
    const StandInSetting slow("delay_us", 2000, 50);
    const auto streams = [&] { return checked<bf16>(dev, rows::copies_and_kernels); };
    {
      const StandInSetting missing("missing_kernels", 1, 0);
      CHECK(holds(message_of<DeviceError>(streams), ": error 561112 ("));
    }
    CHECK(stand_in_faults() == "");
    CHECK(all_ok(checked<bf16>(dev, rows::fill)));
  });
}

}  // namespace ascend_doctor_rows_test
