#include "lora/doctor/ascend_machine.hpp"

#include <doctest/doctest.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/environment.hpp"
#include "support/temp_folder.hpp"

namespace ascend_machine_run_test {

using namespace lora;
using doctor::Finding;
using doctor::User;
using State = Finding::State;

namespace {

struct stat file_of(uid_t user, gid_t group, mode_t mode) {
  struct stat file {};
  file.st_uid = user;
  file.st_gid = group;
  file.st_mode = mode;
  return file;
}

constexpr const char* given =
    "a container is given them by --device /dev/davinci0 (each card), /dev/davinci_manager, /dev/devmm_svm and "
    "/dev/hisi_hdc";

/// A folder that stands for the root, with a device for each of these names.
struct Machine {
  test::TempFolder temp;
  std::string root = temp.path().native();

  explicit Machine(const std::vector<std::string>& devices) {
    std::filesystem::create_directories(temp / "dev");
    for (const std::string& name : devices) {
      io::write_file(temp / "dev" / name, std::string_view());
      close(name);
    }
  }
  void close(const std::string& name, mode_t mode = 0666) const {
    REQUIRE(::chmod((temp / "dev" / name).c_str(), mode) == 0);
  }
  std::vector<Finding> devices(const User& user, bool counted = false) const {
    return doctor::npu_device_findings(root, user, counted, State::missing);
  }
};

const User root{0, {}};

}  // namespace

TEST_CASE(
    "ascend machine: the rights to a file are root's, its owner's, its group's, or anybody's, whichever is first") {
  const User owner{7, {8, 9}}, member{6, {8, 9}}, other{6, {8}};
  for (const auto& one :
       {std::pair(&owner, mode_t{0600}), std::pair(&member, mode_t{0060}), std::pair(&other, mode_t{0006})}) {
    const User& user = *one.first;
    const mode_t bits = one.second;
    CAPTURE(bits);
    CHECK(user.reads_and_writes(file_of(7, 9, bits)));
    CHECK_FALSE(user.reads_and_writes(file_of(7, 9, 0666 & ~bits)));
    CHECK_FALSE(user.reads_and_writes(file_of(7, 9, bits & 0444)));
    CHECK_FALSE(user.reads_and_writes(file_of(7, 9, bits & 0222)));
    CHECK(root.reads_and_writes(file_of(7, 9, 0)));
  }
}

TEST_CASE("ascend machine: this process has its user, its groups and its own group") {
  const User user = User::of_process();
  CHECK(user.id == ::geteuid());
  std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
  REQUIRE(::getgroups(static_cast<int>(groups.size()), groups.data()) == static_cast<int>(groups.size()));
  groups.push_back(::getegid());
  CHECK(user.groups == groups);
}

TEST_CASE("ascend machine: a card has a number in its name, and all devices must be there") {
  const auto found = [](const std::vector<std::string>& names) {
    const auto findings = Machine(names).devices(root);
    return findings.empty() ? std::string() : findings.at(0).found + " | " + findings.at(0).advice;
  };
  const std::string none =
      "there is no /dev/davinci0, nor another card's | install the driver on the host and see that "
      "it is loaded; ";
  CHECK(found({}) == none + given);
  CHECK(found({"davinci", "davinci_manager", "davincix0", "xdavinci0", "devmm_svm", "hisi_hdc"}) == none + given);
  CHECK(found({"davinci3", "davinci_manager", "devmm_svm", "hisi_hdc"}).empty());
  CHECK(found({"davinci3", "davinci_manager", "hisi_hdc"}) == std::string("/dev/devmm_svm is not there | ") + given);
  CHECK(found({"davinci3", "hisi_hdc"}) ==
        std::string("/dev/davinci_manager, /dev/devmm_svm are not there | ") + given);
  const auto one = Machine({"davinci3"}).devices(root);
  REQUIRE(one.size() == 1);
  CHECK(one[0].part == "NPU devices");
  CHECK(one[0].state == State::missing);
  CHECK(Machine({"davinci3"}).devices(root, true).at(0).state == State::note);
  CHECK(Machine({}).devices(root, true).empty());
}

TEST_CASE("ascend machine: of devices that may not be opened the first is told, with its group and what helps") {
  const Machine machine({"davinci1", "davinci0", "davinci_manager", "devmm_svm"});
  for (const char* name : {"davinci1", "davinci0", "devmm_svm"}) machine.close(name, 0600);
  const User stranger{::geteuid() + 1, {::getegid() + 1}};
  const struct group* const group = ::getgrgid(::getegid());
  const auto findings = machine.devices(stranger);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].found == concat("/dev/hisi_hdc is not there; /dev/davinci0 is user ", ::geteuid(), "'s and group ",
                                    ::getegid(), group != nullptr ? concat("'s (", group->gr_name, ")") : "'s",
                                    ", and user ", ::geteuid() + 1, " may not read and write it"));
  CHECK(findings[0].advice ==
        concat("add the user to that group (usermod -aG) and log in again; a container is started with --group-add ",
               ::getegid(), "; ", given));
  io::write_file(machine.temp / "dev" / "hisi_hdc", std::string_view());
  machine.close("hisi_hdc");
  const auto alone = machine.devices(stranger);
  REQUIRE(alone.size() == 1);
  CHECK("/dev/hisi_hdc is not there; " + alone[0].found == findings[0].found);
  CHECK(alone[0].advice + "; " + given == findings[0].advice);
}

TEST_CASE("ascend machine: the driver's version is told beside its devices") {
  const Machine machine({});
  io::create_folders(machine.temp / "usr/local/Ascend/driver");
  io::write_file(machine.temp / "usr/local/Ascend/driver/version.info",
                 std::string_view("a=b\nVersion=1.2\nXVersion=3\n"));
  std::vector<Finding> findings = {{"first"}};
  doctor::add_machine_findings(findings, machine.root, false, State::note);
  REQUIRE(findings.size() == 3);
  CHECK(findings[1].part == "NPU driver");
  CHECK(findings[1].state == State::ok);
  CHECK(findings[1].found == "1.2");
  CHECK(findings[2].part == "NPU devices");
  CHECK(findings[2].state == State::note);
}

TEST_CASE("ascend machine: a folder of operators has kernels for this kind of NPU, or says which it has") {
  const test::TempFolder temp;
  const auto packages = [&](std::string_view kind, State unusable = State::missing) {
    return doctor::packages_finding(kind, unusable);
  };
  const std::string sourced = "source set_env.sh of the toolkit; operators fail with 561107 or 561112 otherwise",
                    path = temp.path().native();
  {
    const test::Environment none("ASCEND_OPP_PATH", "");
    CHECK(packages("Ascend910B3").part == "NPU packages");
    CHECK(packages("Ascend910B3").advice == sourced);
  }
  const test::Environment opp("ASCEND_OPP_PATH", path);
  CHECK(packages("Ascend910B3", State::note).state == State::note);
  CHECK(packages("Ascend910B3").advice == sourced);
  const io::Path kernels = temp / "built-in/op_impl/ai_core/tbe/kernel";
  io::create_folders(kernels);
  CHECK(packages("Ascend910B3").state == State::ok);
  CHECK(packages("Ascend910B3").found == path);
  for (const char* name : {"config", "ascend310p", "ascend910_93"}) io::create_folders(kernels / name);
  const Finding other = packages("Ascend910B3");
  CHECK(other.state == State::note);
  const std::string begin = path + " has kernels for ", end = ", and none for Ascend910B3";
  CHECK((other.found == begin + "ascend310p, ascend910_93" + end ||
         other.found == begin + "ascend910_93, ascend310p" + end));
  CHECK(other.advice ==
        "install the toolkit's operator package for this kind of NPU; operators fail with 561112 otherwise");
  for (const char* kind : {"", "Ascend310P3"}) {  // a kind that isn't told may be any
    CHECK(packages(kind).state == State::ok);
    CHECK(packages(kind).found == path);
    CHECK(packages(kind).advice.empty());
  }
}

}  // namespace ascend_machine_run_test
