#pragma once

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/ascend/runtime/choice.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/doctor/findings.hpp"

// What the vendor's libraries need of the machine, or of the container, and don't name when it is not there.

namespace lora::doctor {

/// Whose rights to open a file count.
struct User {
  uid_t id;
  std::vector<gid_t> groups;

  static User of_process();

  bool reads_and_writes(const struct stat& file) const;
};

/// Devices of the driver that a process opens; nothing where all are there and may be opened. `counted`: the runtime
/// counts NPUs all the same.
std::vector<Finding> npu_device_findings(const std::string& root, const User& user, bool counted,
                                         Finding::State unusable);

/// The driver's version, and its devices.
void add_machine_findings(std::vector<Finding>& findings, const std::string& root, bool counted,
                          Finding::State unusable);

/// Whether the folder of operators that the environment names is one, and has kernels for this kind of NPU.
Finding packages_finding(std::string_view kind, Finding::State unusable);

}  // namespace lora::doctor

#ifndef LORA_COMPILED
#  include "lora/doctor/ascend_machine.ipp"
#endif
