// rdma_check_meeting.hpp: the two processes of `weft rdma-check`, one on each host, over TCP.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "weft/weft.hpp"

namespace weft::internal::tools {

// How the processes find each other, if no launcher started them.
struct RdmaPeers {
    std::string host;     // of the process that was started first; empty: this one
    int port = 7471;      // there
    std::string secret;   // equal at both; empty: a new one
    int timeout_s = 300;  // for the other process to come
};

// If no launcher has started this process, makes it one of two: sets the variables of Weft and begins anew with `words`,
// because options are read once. The first process prints what to run on the other host.
Status launch_rdma_check(RdmaPeers peers, std::vector<std::string> words);

// Thread-bound.
class RdmaMeeting {
  public:
    // No option may have been read before.
    static Result<RdmaMeeting> begin();

    int rank() const { return rank_; }
    // The texts of both processes, by rank.
    Result<std::array<std::string, 2>> exchange(const std::string& own);

  private:
    explicit RdmaMeeting(weft::Communicator comm) : comm_(std::move(comm)), rank_(comm_.rank()) {}
    weft::Communicator comm_;
    int rank_;
};

}  // namespace weft::internal::tools
