// What the vendor's libraries need of a machine or a container, and how doctor tells what is not there.

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lora/doctor/ascend_findings.hpp"
#include "lora/io/files/file.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/stand_in.hpp"
#include "support/temp_folder.hpp"

namespace ascend_machine_test {

namespace {

using namespace lora;
using namespace lora::test;
using State = doctor::Finding::State;

std::optional<doctor::Finding> finding_of(const std::vector<doctor::Finding>& findings, std::string_view part) {
  for (const doctor::Finding& finding : findings)
    if (finding.part == part) return finding;
  return {};
}

/// Files that stand for devices.
struct Machine {
  TempFolder temp;
  std::string root = temp.path().native();

  Machine() { std::filesystem::create_directories(temp / "dev"); }
  void add(const std::string& name, mode_t mode) const {
    const std::string path = root + "/dev/" + name;
    io::write_file(path, std::string_view());
    REQUIRE(::chmod(path.c_str(), mode) == 0);
  }
  std::optional<doctor::Finding> devices(const doctor::User& user, bool counted = false) const {
    return finding_of(doctor::npu_device_findings(root, user, counted, State::missing), "NPU devices");
  }
};

}  // namespace

TEST_CASE("ascend machine: a runtime without the driver's library is told with what a container needs") {
  (void)stand_in_counts();
  const Environment folder("LORA_ASCEND_LIBRARIES", LORA_WITHOUT_DRIVER);
  const Machine machine;
  const auto findings = doctor::examine_ascend(true, "auto", {}, machine.root);
  const auto toolkit = finding_of(findings, "NPU toolkit"), devices = finding_of(findings, "NPU devices");
  REQUIRE(toolkit);
  CHECK(toolkit->state == State::missing);
  CHECK(toolkit->found.starts_with("libascend_hal.so: cannot open shared object file"));
  CHECK(holds(toolkit->advice, "lib64/common and lib64/driver of its folder (/usr/local/Ascend/driver)"));
  CHECK(holds(toolkit->advice, "; a container needs that folder mounted, and its devices"));
  REQUIRE(devices);
  CHECK(devices->state == State::missing);
  CHECK(devices->found == "there is no /dev/davinci0, nor another card's");
  ascend::Toolkit none;
  CHECK(message_of<DeviceError>([&] {
          const ascend::Device dev(ascend::DeviceSettings{}, none);
        }).starts_with("[ascend] the toolkit can't be used: libascend_hal.so: cannot open shared object file"));
}

TEST_CASE("ascend machine: a pipe under a library's name is no library, and nobody waits for it") {
  (void)stand_in_counts();
  const TempFolder temp;
  REQUIRE(::mkfifo((temp / "libascendcl.so").c_str(), 0600) == 0);
  constexpr std::string_view names[] = {"libascendcl.so"};
  const std::string folder = temp.path().native();
  for (const bool named : {true, false}) {
    const Environment libraries("LORA_ASCEND_LIBRARIES", named ? folder : ""),
        path("LD_LIBRARY_PATH", "/nowhere:" + folder);
    const ascend::Libraries found(names);
    CHECK_FALSE(found.any());
    CHECK(found.broken());
    CHECK(found.reason() == folder + "/libascendcl.so is no file");
  }
}

TEST_CASE("ascend machine: what connects NPUs is told, with what the environment says of it") {
  (void)stand_in_counts();
  const auto links = [] { return finding_of(doctor::examine_ascend(false, "auto"), "NPU links"); };
  const Environment size("HCCL_BUFFSIZE", "100"), address("HCCL_IF_IP", "10.0.0.1");
  REQUIRE(links());
  CHECK(links()->state == State::note);
  CHECK(links()->found == LORA_STAND_IN "/libhccl.so; HCCL_IF_IP=10.0.0.1; HCCL_BUFFSIZE=100");
  const Environment port("HCCL_IF_BASE_PORT", "80");
  CHECK(
      links()->found.ends_with("HCCL_BUFFSIZE=100; the environment's HCCL_IF_BASE_PORT is '80'; expected a port from "
                               "1024 to 65520, the first of 32"));
}

TEST_CASE("ascend machine: symbols of the libraries are their own") {
  const Environment folder("LORA_ASCEND_LIBRARIES", LORA_OLD_TOOLKIT);
  constexpr std::string_view names[] = {"libascendcl.so"};
  const ascend::Libraries old(names);
  CHECK((old.find<int()>("aclOnlyInOld") != nullptr));
  CHECK(dlsym(RTLD_DEFAULT, "aclOnlyInOld") == nullptr);
}

TEST_CASE("ascend machine: devices that are not there, or belong to others, are told") {
  const Machine machine;
  const auto me = ::geteuid();
  const doctor::User root{0, {0}}, owner{me, {::getegid()}}, other{me + 1, {::getegid() + 1}},
      member{me + 1, {::getegid()}};
  CHECK_FALSE(machine.devices(root, true));  // the runtime counts some all the same
  CHECK(machine.devices(root)->found == "there is no /dev/davinci0, nor another card's");
  machine.add("davinci7", 0660);
  CHECK(machine.devices(root)->found == "/dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc are not there");
  CHECK(holds(machine.devices(root)->advice, "--device /dev/davinci0 (each card), /dev/davinci_manager"));
  for (const char* name : {"davinci_manager", "devmm_svm", "hisi_hdc"}) machine.add(name, 0666);
  CHECK_FALSE(machine.devices(root));
  CHECK_FALSE(machine.devices(owner));
  CHECK_FALSE(machine.devices(member));
  for (const bool counted : {true, false}) {
    const auto closed = machine.devices(other, counted);
    REQUIRE(closed);
    CHECK(closed->state == (counted ? State::note : State::missing));
    CHECK(holds(closed->found, concat("/dev/davinci7 is user ", me, "'s and group ", ::getegid(), "'s")));
    CHECK(holds(closed->found, concat(", and user ", me + 1, " may not read and write it")));
    CHECK(holds(closed->advice, concat("a container is started with --group-add ", ::getegid())));
  }
}

TEST_CASE("ascend machine: the driver's version is told") {
  (void)stand_in_counts();
  const Machine machine;
  CHECK_FALSE(finding_of(doctor::examine_ascend(true, "auto", {}, machine.root), "NPU driver"));
  const io::Path folder = machine.temp / "usr/local/Ascend/driver";
  std::filesystem::create_directories(folder);
  io::write_file(folder / "version.info", std::string_view("package_version=1\nVersion=24.1.rc3\nother=2\n"));
  CHECK(finding_of(doctor::examine_ascend(true, "auto", {}, machine.root), "NPU driver")->found == "24.1.rc3");
}

TEST_CASE("ascend machine: the folder of operators is looked at") {
  const TempFolder temp;
  const auto packages = [&] { return doctor::packages_finding("Ascend910B3", State::missing); };
  {
    const Environment none("ASCEND_OPP_PATH", "");
    CHECK(packages().state == State::note);
    CHECK(packages().found == "ASCEND_OPP_PATH is not set");
    CHECK(holds(packages().advice, "source set_env.sh of the toolkit"));
  }
  const std::string path = temp.path().native();
  const Environment opp("ASCEND_OPP_PATH", path);
  CHECK(packages().state == State::missing);
  CHECK(packages().found == "ASCEND_OPP_PATH is " + path + ", which has no folder built-in");
  std::filesystem::create_directories(temp / "built-in");
  CHECK(packages().state == State::ok);
  CHECK(packages().found == path);
  const io::Path kernels = temp / "built-in/op_impl/ai_core/tbe/kernel";
  std::filesystem::create_directories(kernels / "config");
  std::filesystem::create_directories(kernels / "ascend910");
  CHECK(packages().state == State::note);
  CHECK(packages().found == path + " has kernels for ascend910, and none for Ascend910B3");
  CHECK(holds(packages().advice, "561112"));
  std::filesystem::create_directories(kernels / "ascend910b");
  CHECK(packages().state == State::ok);
}

TEST_CASE("ascend machine: what to look at depends on why an NPU can't be used") {
  CHECK(holds(ascend::advice_of(507033), "a driver and a toolkit of releases that don't match"));
  CHECK(holds(ascend::advice_of(507899), "npu-smi info shows its health and who uses it"));
}

}  // namespace ascend_machine_test
