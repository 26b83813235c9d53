#include "tools/rdma_check_meeting.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>

#include "src/base/printing.hpp"
#include "src/launchers/launcher_family.hpp"
#include "src/net/address.hpp"

namespace weft::internal::tools {

namespace {

std::string new_secret() {
    std::random_device random;
    std::string secret;
    for (int word = 0; word < 4; ++word) secret += fmt::format("{:08x}", random());
    return secret;
}

std::string address_here() {
    const auto addresses = net::local_addresses();
    if (!addresses || addresses->empty()) return "HOST";
    return addresses->front().with_port(0).text();
}

bool launched_as_two() {
    const auto family = find_family();
    if (!family || *family == nullptr) return false;
    const auto numbers = read_launched_rank(**family);
    return numbers && numbers->ranks == 2;
}

void set(const char* name, const std::string& value) { (void)setenv(name, value.c_str(), 1); }

Status called(const weft::Error& error) {
    return fail(error::command_input, "{}{}", error.what(),
                *error.id() ? fmt::format(" [{}]", error.id()) : std::string());
}

}  // namespace

Status launch_rdma_check(RdmaPeers peers, std::vector<std::string> words) {
    if (launched_as_two()) {
        if (peers.host.empty()) return ok();
        return fail(error::command_option, "--join: a launcher has started this process, which finds the other by it");
    }
    const bool first = peers.host.empty();
    if (!first && peers.secret.empty())
        return fail(error::command_option, "--join needs the --secret that the first process has printed");
    if (first) peers.host = address_here();
    if (peers.secret.empty()) peers.secret = new_secret();
    set("WEFT_RANK", first ? "0" : "1");
    set("WEFT_SIZE", "2");
    set("WEFT_LOCAL_RANK", "0");
    set("WEFT_LOCAL_SIZE", "1");
    set("WEFT_ROOT_HOST", peers.host);
    set("WEFT_ROOT_PORT", std::to_string(peers.port));
    set("WEFT_SECRET", peers.secret);
    set("WEFT_INIT_TIMEOUT_MS", std::to_string(1000 * int64_t(peers.timeout_s)));
    if (first)
        print_output("on the other host:\n  weft rdma-check --join {} --port {} --secret {}\n", peers.host, peers.port,
                     peers.secret);
    flush_output();
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());
    return fail(error::system_call, "/proc/self/exe cannot be started: {}", errno_text(errno));
}

Result<RdmaMeeting> RdmaMeeting::begin() {
    // Options are read once in a process, at the first use.
    set("WEFT_TRANSPORTS", "tcp");
    set("WEFT_WARN_MS", "0");  // each process waits long for the parts of the other
    try {
        weft::Communicator comm = weft::Communicator::from_environment();
        if (comm.ranks() != 2)
            return fail(error::command_input,
                        "the launcher has started {} process{}: start two, one on each of two hosts", comm.ranks(),
                        comm.ranks() == 1 ? "" : "es");
        return RdmaMeeting(std::move(comm));
    } catch (const weft::Error& error) {
        return called(error);
    }
}

Result<std::array<std::string, 2>> RdmaMeeting::exchange(const std::string& own) {
    try {
        std::array<uint64_t, 2> lengths{};
        const uint64_t length = own.size();
        comm_.all_gather(&length, lengths.data(), 1);
        const size_t most = size_t(std::max(lengths[0], lengths[1])) + 1;
        std::string padded = own, all(2 * most, 0);
        padded.resize(most);
        comm_.all_gather(reinterpret_cast<const uint8_t*>(padded.data()), reinterpret_cast<uint8_t*>(all.data()), most);
        return std::array{all.substr(0, lengths[0]), all.substr(most, lengths[1])};
    } catch (const weft::Error& error) {
        return called(error);
    }
}

}  // namespace weft::internal::tools
