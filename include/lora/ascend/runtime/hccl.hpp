#pragma once

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/runtime/library.hpp"
#include "lora/ascend/runtime/runtime.hpp"
#include "lora/ascend/runtime/types.hpp"
#include "lora/core/environment.hpp"

// What is called of HCCL, the vendor's library that moves numbers between NPUs, as its headers declare it in version
// 8.1, and what of the environment it reads.

namespace lora::ascend {

// Under the vendor's names.
using HcclComm = void*;
enum HcclResult : int { HCCL_SUCCESS = 0 };
enum HcclDataType : int { HCCL_DATA_TYPE_INT8 = 0 };
enum HcclSendRecvType : int { HCCL_SEND = 0, HCCL_RECV = 1 };

struct HcclRootInfo {
  char internal[4108];
};
struct HcclSendRecvItem {
  HcclSendRecvType sendRecvType;
  void* buf;
  std::uint64_t count;
  HcclDataType dataType;
  std::uint32_t remoteRank;
};

/// Functions of HCCL, under the vendor's names.
struct HcclFunctions {
  HcclResult (*HcclGetRootInfo)(HcclRootInfo* root) = nullptr;
  HcclResult (*HcclCommInitRootInfo)(std::uint32_t ranks, const HcclRootInfo* root, std::uint32_t rank,
                                     HcclComm* comm) = nullptr;
  HcclResult (*HcclCommDestroy)(HcclComm comm) = nullptr;
  HcclResult (*HcclAllGather)(void* send, void* receive, std::uint64_t count, HcclDataType type, HcclComm comm,
                              aclrtStream stream) = nullptr;
  HcclResult (*HcclBatchSendRecv)(HcclSendRecvItem* items, std::uint32_t count, HcclComm comm,
                                  aclrtStream stream) = nullptr;
  HcclResult (*HcclGetCommAsyncError)(HcclComm comm, HcclResult* error) = nullptr;
  const char* (*HcclGetErrorString)(HcclResult error) = nullptr;

  template <class F>
  void for_each(F&& f) {
    f("HcclGetRootInfo", HcclGetRootInfo);
    f("HcclCommInitRootInfo", HcclCommInitRootInfo);
    f("HcclCommDestroy", HcclCommDestroy);
    f("HcclAllGather", HcclAllGather);
    f("HcclBatchSendRecv", HcclBatchSendRecv);
    f("HcclGetCommAsyncError", HcclGetCommAsyncError);
    f("HcclGetErrorString", HcclGetErrorString);
  }
};

/// The library, opened where it is first needed.
class Hccl {
 public:
  Hccl() : libraries_(names) {
    problem_ = libraries_.any() ? load(functions, libraries_) : libraries_.reason();
    if (libraries_.any() && !problem_.empty()) problem_ = concat(libraries_.names(), " has no function ", problem_);
  }

  HcclFunctions functions;
  /// Why it can't be used; empty where it can.
  const std::string& problem() const { return problem_; }
  const std::string& library() const { return libraries_.names(); }

 private:
  static constexpr std::string_view names[] = {"libhccl.so"};

  Libraries libraries_;
  std::string problem_;
};

/// Names of this host's network interfaces.
inline std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> all(::if_nameindex(), ::if_freenameindex);
  if (all)
    for (const struct if_nameindex* at = all.get(); at->if_index != 0; ++at) names.emplace_back(at->if_name);
  return names;
}

/// Whether HCCL_SOCKET_IFNAME leaves one of these interfaces: beginnings of names in a list with commas, behind '='
/// whole names, and behind a '^' before either those that are not to be taken.
inline bool selects_interface(std::string_view choice, std::span<const std::string> names) {
  const auto takes = [&](char sign) {
    const bool there = choice.starts_with(sign);
    choice.remove_prefix(there ? 1 : 0);
    return there;
  };
  const bool without = takes('^'), whole = takes('=');
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    bool listed = false;
    for (std::size_t at = 0, end; at < choice.size() && !listed; at = end + 1) {
      end = std::min(choice.find(',', at), choice.size());
      const std::string_view word = choice.substr(at, end - at);
      listed = !word.empty() && (whole ? name == word : name.starts_with(word));
    }
    return listed != without;
  });
}

/// Values of the environment that HCCL reads, and takes anything for.
/// Throws   ConfigError for what it does not know
inline void check_hccl_environment() {
  (void)environment_number("HCCL_CONNECT_TIMEOUT", 120, 7200, "whole seconds from 120 to 7200");
  (void)environment_number("HCCL_EXEC_TIMEOUT", 0, 17340, "whole seconds from 0, which is no limit, to 17340");
  (void)environment_number("HCCL_IF_BASE_PORT", 1024, 65520, "a port from 1024 to 65520, the first of 32");
  (void)environment_number("HCCL_BUFFSIZE", 1, 1 << 20, "whole MB, at least 1");
  const char* const choice = std::getenv("HCCL_SOCKET_IFNAME");
  if (const auto names = interface_names(); choice != nullptr && *choice != '\0' && !selects_interface(choice, names)) {
    std::string list;
    for (const std::string& name : names) list += concat(list.empty() ? "" : ", ", name);
    fail<ConfigError>("the environment's HCCL_SOCKET_IFNAME is '", std::string_view(choice),
                      "', which selects no network interface of this host's; expected one of ", std::string_view(list));
  }
  const char* const address = std::getenv("HCCL_IF_IP");
  if (address == nullptr || *address == '\0') return;
  in6_addr parsed{};
  if (inet_pton(AF_INET, address, &parsed) != 1 && inet_pton(AF_INET6, address, &parsed) != 1)
    fail<ConfigError>("the environment's HCCL_IF_IP is '", std::string_view(address),
                      "'; expected an IP address of this host's, such as 192.168.1.10");
}

/// Has HCCL wait for other ranks as long as the run does, where the environment does not say how long. To be called
/// before the library is opened.
inline void set_hccl_timeouts(double seconds) {
  const auto set = [&](const char* name, double least, double most) {
    const std::string value = concat(static_cast<int>(std::ceil(std::clamp(seconds, least, most))));
    ::setenv(name, value.c_str(), 0);
  };
  set("HCCL_CONNECT_TIMEOUT", 120, 7200);
  set("HCCL_EXEC_TIMEOUT", 1, 17340);
}

}  // namespace lora::ascend
