#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/doctor/report.hpp"
#include "lora/doctor/trial.hpp"
#include "lora/kernel/complete.hpp"
#include "lora/run/environment.hpp"
#if defined(LORA_WITH_ASCEND)
#  include "lora/ascend/kernels.hpp"
#endif

// What is no check: there is nothing that it should be, and who reads a report wants to know it.

namespace lora::doctor {

/// The time, the build and the host.
inline std::vector<Fact> host_facts(int threads) {
  std::vector<Fact> facts = {{"time", run::time_text()}};
  const std::string lines = run::describe_environment(threads);
  for (std::size_t begin = 0, end; begin < lines.size(); begin = end + 1) {
    end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = std::string_view(lines).substr(begin, end - begin);
    const auto colon = line.find(": ");
    if (colon != line.npos) facts.push_back({std::string(line.substr(0, colon)), std::string(line.substr(colon + 2))});
  }
  return facts;
}

/// The variables of the environment that change what the vendor's libraries and this one do.
inline std::vector<Fact> environment_facts() {
  constexpr std::string_view wanted[] = {"ASCEND_", "HCCL_", "LORA_", "OMP_", "GOMP_"};
  std::vector<Fact> facts;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text = *one;
    const auto equals = text.find('=');
    if (equals == text.npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (std::any_of(std::begin(wanted), std::end(wanted), [&](std::string_view w) { return name.starts_with(w); }))
      facts.push_back({std::string(name), std::string(text.substr(equals + 1))});
  }
  std::sort(facts.begin(), facts.end(), [](const Fact& a, const Fact& b) { return a.what < b.what; });
  return facts;
}

namespace detail {

/// What the bits of a mask mean that a device made of the contract's.
inline std::string bit_order(const std::vector<bool>& kept, const std::vector<bool>& contract) {
  const auto matches = [&](std::size_t reach, bool swapped) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::size_t from = i / reach * reach + (reach - 1 - i % reach);
      if (kept[i] != (contract[reach == 1 ? i : from] != swapped)) return false;
    }
    return true;
  };
  for (const bool swapped : {false, true}) {
    const std::string_view kind = swapped ? ", and ones are what is dropped" : "";
    if (matches(1, swapped)) return concat("as the contract has it", kind);
    if (matches(8, swapped)) return concat("**the first element is a byte's highest bit**", kind);
    if (matches(16, swapped)) return concat("**the first element is the highest of 16 bits**", kind);
    if (matches(32, swapped)) return concat("**the first element is the highest of 32 bits**", kind);
  }
  std::size_t different = 0, dropped = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    different += kept[i] != contract[i] ? 1 : 0;
    dropped += kept[i] ? 0 : 1;
  }
  return concat("**another**: ", different, " of ", kept.size(), " elements differ, ", dropped, " are dropped");
}

template <class T, AnyDevice D>
void add_sums(D& dev, std::vector<Fact>& facts) {
  constexpr Precision precision = precision_of<T>();
  constexpr Index k = 256;
  const double small = roundoff(precision) / 2;  // too small to change 1 by itself
  const std::string type(lora::name_of(precision));
  const auto say = [&](std::string_view what, double found, double exact) {
    const bool whole = std::abs(found - exact) <= 2 * roundoff(precision) * exact;
    facts.push_back({concat(what, " in ", type),
                     concat(whole ? "kept" : "**lost**", ": ", significant(found, 9), " of ", significant(exact, 9))});
  };
  Trial<D, T> trial(dev, precision, Sizes());
  std::vector<double> row(static_cast<std::size_t>(k), small), ones(static_cast<std::size_t>(k), 1);
  const View<D, const T> smalls = trial.template given<T>(1, k, row), all = trial.template given<T>(1, k, ones);
  const View<D, T> c = trial.template given<T>(1, 1, std::vector<double>(1, 1));
  kernel::gemm(dev, kernel::Form::nt, smalls, all, c, 1.0, true);
  row[0] = 1;
  const View<D, const T> begun = trial.template given<T>(1, k, row);
  const View<D, T> d = trial.room(1, 1);
  kernel::gemm(dev, kernel::Form::nt, begun, all, d);
  trial.result("added", c, {});
  trial.result("within", d, {});
  const auto& outputs = trial.outputs();
  say("small products that are added to 1", outputs[0].values[0], 1 + k * small);
  say("small products behind 1 in one sum", outputs[1].values[0], 1 + (k - 1) * small);
}

template <class T, AnyDevice D>
void add_dropout(D& dev, std::vector<Fact>& facts) {
  constexpr Precision precision = precision_of<T>();
  constexpr Index rows = 4, cols = 256;
  const kernel::Dropout rule{0.5, 0x5EED};
  const auto mask_of = [&]<class E, class U>(Trial<E, U>& trial) {
    const View<E, const U> x = trial.template given<U>(rows, cols, std::vector<double>(rows * cols, 1));
    const View<E, U> y = trial.room(rows, cols);
    const auto sequence = trial.numbers({0, 0, 1, 1}), positions = trial.numbers({0, 1, 0, 1});
    kernel::dropout<E, U>(trial.dev, rule, x, sequence, positions, y);
    trial.result("y", y, {});
    std::vector<bool> kept;
    for (const double value : trial.outputs().at(0).values) kept.push_back(value != 0);
    return kept;
  };
  std::vector<bool> contract;
  for (const std::uint32_t sequence : {0u, 1u})
    for (const std::uint32_t position : {0u, 1u})
      for (std::uint32_t j = 0; j < cols; ++j)
        contract.push_back(static_cast<double>(philox({j / 4, position, sequence, 0}, rule.key)[j % 4]) >=
                           rule.p * 0x1p32);
  const Sizes sizes;
  Trial<D, T> trial(dev, precision, sizes);
  facts.push_back(
      {concat("order of dropout's bits in ", lora::name_of(precision)), bit_order(mask_of(trial), contract)});
}

}  // namespace detail

/// How a device computes in T, where several ways are right.
template <class T, AnyDevice D>
void add_arithmetic(D& dev, std::vector<Fact>& facts) {
  if constexpr (sizeof(T) < sizeof(Accum<T>)) detail::add_sums<T>(dev, facts);
  detail::add_dropout<T>(dev, facts);
}

/// How the CPU forms products, for the report.
inline void add_device(cpu::Device& dev, std::vector<Fact>& facts) {
  facts.push_back({"products", describe_products(dev)});
}

#if defined(LORA_WITH_ASCEND)
/// The toolkit, its libraries and operators, for the report.
inline void add_device(ascend::Device& dev, std::vector<Fact>& facts) {
  const ascend::Toolkit& toolkit = dev.toolkit();
  const auto or_none = [](std::string text) { return text.empty() ? "the toolkit doesn't tell" : text; };
  facts.push_back({"CANN", or_none(toolkit.package_version())});
  facts.push_back({"runtime interface", or_none(toolkit.version())});
  facts.push_back({"runtime", toolkit.names()});
  facts.push_back({"operators in", toolkit.operator_names()});
  std::size_t there = 0;
  for (const ascend::OperatorInfo& one : toolkit.operators_found) {
    there += one.there ? 1 : 0;
    if (!one.there) facts.push_back({concat("without ", one.name), concat("done by ", one.fallback)});
  }
  facts.push_back({"operators", concat(there, " of ", toolkit.operators_found.size())});
  facts.push_back({"work memory", concat(dev.arena_grows() ? "grows by virtual memory, up to " : "has a fixed share: ",
                                         size_text(dev.arena().capacity()))});
  facts.push_back({"work behind what has failed", dev.stops_after_faults() ? "thrown away" : "**goes on**"});
  facts.push_back({"fixed order of sums", dev.settings().deterministic ? "asked for" : "not asked for"});
  ascend::Products& products = dev.state<ascend::Products>();
  facts.push_back({"float32 results of bfloat16 products", products.writes_float<bf16>() ? "written" : "not written"});
  facts.push_back({"float32 results of float16 products", products.writes_float<f16>() ? "written" : "not written"});
}
#endif

}  // namespace lora::doctor
