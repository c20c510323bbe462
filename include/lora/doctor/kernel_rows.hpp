#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/doctor/held_device.hpp"
#include "lora/doctor/kernels.hpp"
#include "lora/doctor/report.hpp"

namespace lora::doctor {

/// Outputs of a check's kernels on a device.
template <AnyDevice D, class T>
std::vector<Output> outputs_of(void (*kernels)(Trial<D, T>&), D& dev, Precision precision, const Sizes& sizes) {
  Trial<D, T> trial(dev, precision, sizes);
  kernels(trial);
  return std::move(trial.outputs());
}

/// A row for each output.
inline std::vector<KernelRow> rows_of(const KernelRow& about, const std::vector<Output>& given,
                                      const std::vector<Output>& expected) {
  std::vector<KernelRow> rows;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Difference difference = compare(given[i], expected.at(i).values);
    KernelRow row = about;
    row.output = std::string(given[i].name);
    row.error = difference.error;
    row.units = difference.units;
    row.bound = given[i].bound;
    if (!difference.within) {
      row.state = State::too_far;
      row.words = concat("element ", difference.at, " is ", significant(difference.given, 7), " but ",
                         significant(difference.expected, 7), " was expected");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Checks one case, twice on the device: `repeats` tells whether the bits were the same.
template <AnyDevice D, class T>
std::vector<KernelRow> check_case(const Case<D, T>& one, D& dev, cpu::Device& reference, const Sizes& sizes,
                                  bool& repeats) {
  constexpr Precision precision = precision_of<T>();
  const KernelRow about{std::string(one.family), std::string(one.kernel), std::string(lora::name_of(precision)), ""};
  const std::vector<Output> given = outputs_of(one.on_device, dev, precision, sizes);
  repeats = same(given, outputs_of(one.on_device, dev, precision, sizes));
  return rows_of(about, given, outputs_of(one.reference, reference, precision, sizes));
}

/// Checks all kernels in T. `begins(what)` is called before each family. An error is a row, and the next case follows.
template <class T, class Make, class Begins>
void check_kernels(HeldDevice<Make>& device, cpu::Device& reference, const Sizes& sizes, Report& report,
                   std::string& unrepeated, const Begins& begins) {
  using D = typename HeldDevice<Make>::Device;
  const std::string type(lora::name_of(precision_of<T>()));
  std::string_view family;
  for (const Case<D, T>& one : cases<D, T>()) {
    if (one.family != family) begins(concat(one.family, " in ", type));
    family = one.family;
    try {
      bool repeats = true;
      for (KernelRow& row : check_case(one, device.get(), reference, sizes, repeats))
        report.kernels.push_back(std::move(row));
      if (!repeats) unrepeated += concat(unrepeated.empty() ? "" : "; ", one.family, ", ", one.kernel, " in ", type);
    } catch (const std::exception& error) {
      report.kernels.push_back({std::string(one.family), std::string(one.kernel), type, "", State::failed, 0, 0, 0,
                                std::string(error.what())});
      device.look_after();
    }
  }
}

}  // namespace lora::doctor
