#pragma once

#include "lora/core/config.hpp"
#include "lora/doctor/ascend_machine.hpp"

namespace lora::doctor {

LORA_INLINE User User::of_process() {
  User user{::geteuid(), {}};
  user.groups.resize(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(user.groups.size()), user.groups.data());
  user.groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  user.groups.push_back(::getegid());
  return user;
}

LORA_INLINE bool User::reads_and_writes(const struct stat& file) const {
  const auto all_of = [&](mode_t bits) { return (file.st_mode & bits) == bits; };
  if (id == 0) return true;
  if (id == file.st_uid) return all_of(S_IRUSR | S_IWUSR);
  if (std::find(groups.begin(), groups.end(), file.st_gid) != groups.end()) return all_of(S_IRGRP | S_IWGRP);
  return all_of(S_IROTH | S_IWOTH);
}

LORA_INLINE std::vector<Finding> npu_device_findings(const std::string& root, const User& user, bool counted,
                                                     Finding::State unusable) {
  constexpr std::string_view shared[] = {"davinci_manager", "devmm_svm", "hisi_hdc"};
  constexpr std::string_view given =
      "a container is given them by --device /dev/davinci0 (each card), /dev/davinci_manager, /dev/devmm_svm and "
      "/dev/hisi_hdc";
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root + "/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    constexpr std::string_view card = "davinci";
    if (name.size() > card.size() && name.starts_with(card) &&
        std::isdigit(static_cast<unsigned char>(name[card.size()])))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  Finding finding{"NPU devices", counted ? Finding::State::note : unusable};
  if (names.empty()) {
    if (counted) return {};
    finding.found = "there is no /dev/davinci0, nor another card's";
    finding.advice = concat("install the driver on the host and see that it is loaded; ", given);
    return {finding};
  }
  names.insert(names.end(), std::begin(shared), std::end(shared));
  std::string absent, closed;
  for (const std::string& name : names) {
    struct stat file {};
    const std::string path = concat("/dev/", name);
    if (::stat((root + path).c_str(), &file) != 0) {
      absent += concat(absent.empty() ? "" : ", ", path);
    } else if (closed.empty() && !user.reads_and_writes(file)) {
      const struct group* const group = ::getgrgid(file.st_gid);
      closed = concat(path, " is user ", file.st_uid, "'s and group ", file.st_gid,
                      group != nullptr ? concat("'s (", group->gr_name, ")") : "'s", ", and user ", user.id,
                      " may not read and write it");
      finding.advice =
          concat("add the user to that group (usermod -aG) and log in again; a container is started with --group-add ",
                 file.st_gid);
    }
  }
  if (!absent.empty()) {
    finding.found = absent + (absent.find(',') == absent.npos ? " is not there" : " are not there");
    finding.advice += concat(finding.advice.empty() ? "" : "; ", given);
  }
  if (!closed.empty()) finding.found += concat(finding.found.empty() ? "" : "; ", closed);
  if (finding.found.empty()) return {};
  return {finding};
}

LORA_INLINE void add_machine_findings(std::vector<Finding>& findings, const std::string& root, bool counted,
                                      Finding::State unusable) {
  std::ifstream versions(root + "/usr/local/Ascend/driver/version.info");
  constexpr std::string_view key = "Version=";
  for (std::string line; std::getline(versions, line);)
    if (line.starts_with(key)) findings.push_back({"NPU driver", Finding::State::ok, line.substr(key.size())});
  for (Finding& finding : npu_device_findings(root, User::of_process(), counted, unusable))
    findings.push_back(std::move(finding));
}

LORA_INLINE Finding packages_finding(std::string_view kind, Finding::State unusable) {
  Finding finding{"NPU packages", Finding::State::note};
  const char* const path = std::getenv("ASCEND_OPP_PATH");
  constexpr std::string_view sourced =
      "source set_env.sh of the toolkit; operators fail with 561107 or 561112 otherwise";
  if (path == nullptr || *path == '\0') {
    finding.found = "ASCEND_OPP_PATH is not set";
    finding.advice = sourced;
    return finding;
  }
  const io::Path folder(path);
  std::error_code error;
  if (!std::filesystem::is_directory(folder / "built-in", error)) {
    finding.state = unusable;
    finding.found = concat("ASCEND_OPP_PATH is ", path, ", which has no folder built-in");
    finding.advice = sourced;
    return finding;
  }
  finding.found = path;
  std::string others;
  const io::Path kernels = folder / "built-in/op_impl/ai_core/tbe/kernel";
  for (std::filesystem::directory_iterator entry(kernels, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (!name.starts_with("ascend")) continue;
    if (kind.empty() || ascend::is_of_kind(kind, name)) {
      finding.state = Finding::State::ok;
      return finding;
    }
    others += concat(others.empty() ? "" : ", ", name);
  }
  if (others.empty()) {  // of a layout that is not known here
    finding.state = Finding::State::ok;
    return finding;
  }
  finding.found += concat(" has kernels for ", others, ", and none for ", kind);
  finding.advice = "install the toolkit's operator package for this kind of NPU; operators fail with 561112 otherwise";
  return finding;
}

}  // namespace lora::doctor
