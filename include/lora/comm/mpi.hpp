#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lora/comm/on_host.hpp"
#include "lora/core/error.hpp"

namespace lora::comm {

/// The sizes of the pieces of at most `longest` bytes, of which so many bytes are made.
inline std::vector<std::size_t> pieces_of(std::size_t bytes, std::size_t longest) {
  std::vector<std::size_t> sizes(bytes / longest, longest);
  if (bytes % longest > 0) sizes.push_back(bytes % longest);
  return sizes;
}

/// Ranks that are processes of MPI. Only the thread that made it may call it, as MPI_THREAD_FUNNELED asks for. Numbers
/// go from rank to rank as bytes, in pieces of at most 1 GiB, since MPI counts in int; so the processors must have the
/// same order of bytes. Waiting gives way to other threads at once and sleeps after a while, for a rank's teams of
/// threads may need the processor.
/// Throws   Error, from every call, where another rank does not come within the time that `wait_at_most` says, 30
///          minutes at first, or MPI fails
class Mpi final : public HostRanks {
 public:
  static constexpr std::size_t longest_piece = std::size_t{1} << 30;

  /// A copy of `of`, on which the program may go on to send what it likes. Whoever has begun MPI ends it, after this.
  /// `longest`: of pieces, at most `longest_piece`.
  explicit Mpi(MPI_Comm of, std::size_t longest = longest_piece)
      : longest_(std::clamp<std::size_t>(longest, 1, longest_piece)) {
    check("MPI_Comm_dup", MPI_Comm_dup(of, &comm_));
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(comm_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(comm_, &size_));
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    check("MPI_Get_processor_name", MPI_Get_processor_name(name, &length));
    host_.assign(name, static_cast<std::size_t>(length));
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  /// Between calls that failed and the end of the process nothing of MPI is waited for.
  ~Mpi() override {
    int finalized = 0;
    if (!failed_ && MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Comm_free(&comm_);
  }

  std::string host() const override { return host_; }
  Traffic traffic() const override { return traffic_; }

  void wait_at_most(std::chrono::duration<double> time) override { timeout_ = time; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    std::vector<Piece> out, in;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      add(out, other, 0, part_of(bytes, begins, rank_));
      add(in, other, 0, part_of(bytes, begins, other));
    }
    move(out, in);
  }

  void exchange_on_host(std::span<const std::span<std::byte>> mine, std::span<const int> owners,
                        std::span<const Index> begins, std::span<const std::span<std::byte>> parts) override {
    std::vector<Piece> out, in;
    std::size_t next = 0;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const int tag = static_cast<int>(i) + 1;
      if (owners[i] != rank_) {
        add(in, owners[i], tag, parts[i]);
        continue;
      }
      const std::span<std::byte> slab = mine[next++];
      const auto own = part_of(slab, begins, rank_);
      if (!own.empty()) std::memcpy(parts[i].data(), own.data(), own.size());
      for (int other = 0; other < size_; ++other)
        if (other != rank_) add(out, other, tag, part_of(slab, begins, other));
    }
    move(out, in);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Piece {
    int other;
    int tag;
    std::span<std::byte> bytes;
  };

  static std::span<std::byte> part_of(std::span<std::byte> slab, std::span<const Index> begins, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return slab.subspan(static_cast<std::size_t>(begins[at]), static_cast<std::size_t>(begins[at + 1] - begins[at]));
  }
  // Pieces with the same tag arrive in the order in which they are sent.
  void add(std::vector<Piece>& pieces, int other, int tag, std::span<std::byte> bytes) const {
    for (const std::size_t size : pieces_of(bytes.size(), longest_)) {
      pieces.push_back({other, tag, bytes.first(size)});
      bytes = bytes.subspan(size);
    }
  }

  void move(const std::vector<Piece>& out, const std::vector<Piece>& in) {
    std::vector<MPI_Request> requests(in.size() + out.size(), MPI_REQUEST_NULL);
    std::size_t next = 0;
    for (const Piece& piece : in)
      check("MPI_Irecv", MPI_Irecv(piece.bytes.data(), static_cast<int>(piece.bytes.size()), MPI_BYTE, piece.other,
                                   piece.tag, comm_, &requests[next++]));
    for (const Piece& piece : out)
      check("MPI_Isend", MPI_Isend(piece.bytes.data(), static_cast<int>(piece.bytes.size()), MPI_BYTE, piece.other,
                                   piece.tag, comm_, &requests[next++]));
    const auto begin = Clock::now();
    wait(requests, in, out);
    traffic_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    for (const Piece& piece : out) traffic_.sent_bytes += static_cast<double>(piece.bytes.size());
    for (const Piece& piece : in) traffic_.received_bytes += static_cast<double>(piece.bytes.size());
  }

  // Requests are those of `in`, then those of `out`.
  void wait(std::vector<MPI_Request>& requests, const std::vector<Piece>& in, const std::vector<Piece>& out) {
    constexpr auto patience = std::chrono::milliseconds(2);  // then it sleeps between two looks
    constexpr auto pause = std::chrono::microseconds(50);
    constexpr Clock::duration longest_look =
        std::chrono::seconds(1);  // more is time for which this process was stopped
    auto last = Clock::now();
    Clock::duration waited{};
    int done = 0;
    while (true) {
      check("MPI_Testall", MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
      if (done != 0) return;
      const auto now = Clock::now();
      waited += std::min(now - std::exchange(last, now), longest_look);
      if (waited > timeout_) fail_for_want_of(requests, in, out);
      if (waited < patience) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(pause);
      }
    }
  }

  [[noreturn]] void fail_for_want_of(const std::vector<MPI_Request>& requests, const std::vector<Piece>& in,
                                     const std::vector<Piece>& out) {
    failed_ = true;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      int done = 0;
      check("MPI_Request_get_status", MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE));
      if (done != 0) continue;
      const bool sends = i < in.size();
      fail<Error>("rank ", sends ? in[i].other : out[i - in.size()].other, sends ? " sent" : " took", " nothing for ",
                  timeout_.count(), " s: it has ended, hangs, or is at other work than this one");
    }
    fail<Error>("the other ranks were ready only after ", timeout_.count(), " s");
  }

  void check(std::string_view call, int result) {
    if (result == MPI_SUCCESS) return;
    failed_ = true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    fail<Error>(call, " failed: ", std::string_view(text, static_cast<std::size_t>(length)));
  }

  std::size_t longest_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::chrono::duration<double> timeout_{1800};
  int rank_ = 0, size_ = 1;
  std::string host_;
  Traffic traffic_;
  bool failed_ = false;
};

}  // namespace lora::comm
