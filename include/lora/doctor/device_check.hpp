#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/doctor/facts.hpp"
#include "lora/doctor/held_device.hpp"
#include "lora/doctor/kernel_rows.hpp"
#include "lora/doctor/report.hpp"
#include "lora/doctor/times.hpp"
#include "lora/doctor/training.hpp"

namespace lora::doctor {

/// What a check is told.
struct Options {
  int threads = 0;  ///< of the processors beside the device; 0: all
  Sizes sizes{};
};

/// Checks a device, which `make` makes: every kernel family against the processors in double, a short training against
/// theirs in float32 (also with offload), what only the device can tell, and how long things take. What fails is told
/// in the report, and the rest is done all the same. `report` has what is known already. `begins(report)` is called
/// before each part, whose name is report.unfinished, so that a report is there even if the process ends meanwhile.
template <class Make, class Begins>
Report check_device(const Make& make, const Options& options, Report report, const Begins& begins) {
  cpu::Device reference(options.threads);
  HeldDevice<Make> device(make);
  report.host = host_facts(reference.threads());
  report.environment = environment_facts();
  const auto begin = [&](std::string what) {
    report.unfinished = std::move(what);
    begins(report);
  };
  const auto part = [&](const std::string& what, const auto& f) {
    begin(what);
    try {
      f();
    } catch (const std::exception& error) {
      report.problems.push_back(concat(what, ": ", std::string_view(error.what())));
      device.look_after();
    }
  };
  const auto each_type = [](const auto& f) {
    f.template operator()<float>();
    f.template operator()<bf16>();
    f.template operator()<f16>();
  };
  const auto memory = [&](std::string_view when) {
    const MemoryInfo info = device.get().memory();
    report.facts.push_back(
        {concat("memory ", when), concat(size_text(info.free), " of ", size_text(info.total), " are free")});
  };

  report.device = "a device that can't be opened";
  try {
    report.device = device.get().describe();
  } catch (const std::exception& error) {
    report.problems.push_back(error.what());
    return report;
  }
  part("what the device is", [&] {
    add_device(device.get(), report.facts);
    memory("before");
  });
  each_type([&]<class T>() {
    part(concat("arithmetic in ", lora::name_of(precision_of<T>())),
         [&] { add_arithmetic<T>(device.get(), report.facts); });
  });
  std::string unrepeated;
  each_type([&]<class T>() { check_kernels<T>(device, reference, options.sizes, report, unrepeated, begin); });
  report.facts.push_back({"bits of a second run", unrepeated.empty() ? "the same" : "**others**: " + unrepeated});
  part("training on the processors", [&] {
    report.reference.type = "float32";
    train_tiny<float>(reference, report.reference);
  });
  each_type([&]<class T>() { check_training<T>(device, report, begin); });
  check_offload(device, report, begin);
  part("times", [&] {
    const Index width = width_to_time(device);
    report.timed = concat("Medians of 5 launches at ", width, " rows and columns, heads of 128, one sequence.");
    each_type([&]<class T>() { time_kernels<T>(device, width, report, begin); });
  });
  part("copies and launches", [&] { report.speeds = speeds_of(device.get()); });
  part("memory afterward", [&] { memory("afterward"); });
  report.unfinished.clear();
  return report;
}

}  // namespace lora::doctor
