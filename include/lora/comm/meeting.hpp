#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/facts.hpp"
#include "lora/comm/on_host.hpp"

namespace lora::comm {

/// Where ranks find each other, as launchers such as torchrun say it: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
struct MeetingPlace {
  int rank = 0, size = 1;
  std::string address{};  ///< of the host of rank 0, a name or numbers
  int port = 29500;
};

/// The environment's, where WORLD_SIZE is above 1. Where torchrun holds MASTER_PORT itself, it is the port behind, or
/// before the last.
/// Throws   ConfigError for what is missing or can't be meant
std::optional<MeetingPlace> meeting_place();

/// A connection to another process, closed with this.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int handle) : handle_(handle) {}
  Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket();

  int handle() const { return handle_; }
  bool open() const { return handle_ >= 0; }

 private:
  int handle_ = -1;
};

/// Ranks of whose hosts each is connected with that of rank 0: enough for what is said between them, while devices have
/// links of their own. Who connects and is no rank of the run is refused, and told in the log. What is sent is neither
/// encrypted nor signed: MASTER_PORT belongs into a network of which every host is trusted.
/// Throws   Error, from every call, where another rank has ended, or does not come within the time that `wait_at_most`
///          says; all ranks that wait are told which it was
class Meeting final : public HostRanks {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns once all are there. `version`: what ranks must have the same, of at most 119 bytes. `socket`: one that is
  /// there already, which listens (rank 0) or is connected with rank 0 (others); none: as the place says. `run`: by
  /// what a run is told from another, such as its settings; compared before anything is made together.
  /// Throws   Error where the address is not this host's or the port is taken (rank 0), nobody answers there (others),
  ///          a rank comes twice, with another size, version or order of bytes, or not in time
  ///          ConfigError, on every rank, where one has another fact of the run, which is named
  Meeting(MeetingPlace place, std::string_view version, std::chrono::duration<double> timeout, Socket socket = {},
          const std::vector<Fact>& run = {});

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Traffic traffic() const override { return traffic_; }
  void wait_at_most(std::chrono::duration<double> time) override { timeout_ = time; }

  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override;
  bool exchanges() const override { return false; }
  /// Throws   Error: what takes part of a step's sums goes by the devices' own links
  void exchange_on_host(std::span<const std::span<std::byte>> mine, std::span<const int> owners,
                        std::span<const Index> begins, std::span<const std::span<std::byte>> parts) override;

 private:
  struct Hello;
  struct Guest;  // a connection that has not said yet who it is

  Socket open_door() const;
  void receive_all(const Socket& door);
  void take_in(const Socket& door, std::vector<Guest>& guests);
  bool let_in(const Socket& door, std::vector<Guest>& guests) const;
  Socket connected() const;
  void join(Socket socket);
  bool welcome(Guest& guest);
  enum class Refusal : std::uint64_t { none, error, settings };  // as it goes over the wire

  std::string difference_from(std::string_view theirs) const;
  // `reversed`: the other side has its numbers in another order of bytes.
  void refuse(const Socket& socket, const std::string& reason, Refusal kind, bool reversed = false) const;
  void dismiss(const Socket& door, std::vector<Guest>& guests, const std::string& reason, Refusal kind) const;
  std::string missing() const;

  void send(int other, std::span<const std::byte> bytes);
  void receive(int other, std::span<std::byte> bytes);
  // Tells the ranks that wait for rank 0 why it ends.
  [[noreturn]] void end(const std::string& reason, Refusal kind = Refusal::error);
  Clock::time_point limit() const;
  void wait_for(int other, short events, Clock::time_point until);

  MeetingPlace place_;
  std::string version_, run_;
  std::chrono::duration<double> timeout_;
  std::vector<Socket> sockets_;  // of rank 0 to each other rank; of others the first, to rank 0
  Traffic traffic_;
};

}  // namespace lora::comm

#ifndef LORA_COMPILED
#  include "lora/comm/meeting.ipp"
#endif
