// peer.cpp: a rank in another process for the conformance tests: maps the segment's segment, sends three messages and
// then does nothing until it is killed. Arguments: the segment's descriptor as a path, its rank, the transport's name,
// the communicator's secret in hexadecimal.
#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "src/base/process_token.hpp"
#include "src/net/secret.hpp"
#include "src/registry.hpp"
#include "src/segment/flag_block.hpp"
#include "src/segment/liveness.hpp"
#include "src/segment/oob_store.hpp"

using namespace weft::internal;

static void require(bool holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

int main(int count, char** arguments) {
    require(count == 5, "usage: peer SEGMENT RANK TRANSPORT SECRET");
    alarm(120);  // whatever becomes of the test, nothing stays
    Fd fd(open(arguments[1], O_RDWR | O_CLOEXEC));
    require(bool(fd), "the segment cannot be opened");
    auto segment = Segment::map(std::move(fd));
    require(segment.ok(), "the segment cannot be mapped");
    const int rank = atoi(arguments[2]);
    RankRow& row = (*segment)->row(rank);
    row.pid = getpid();
    (*segment)->rank_info(rank).pid = row.pid;
    row.process = process_token();
    require(Liveness(**segment).claim(rank).ok(), "the rank cannot be claimed");
    row.state.store(RankState::joined, std::memory_order_release);

    const Transport* transport = nullptr;
    for (const Transport* candidate : registry::transports())
        if (candidate->name == std::string_view(arguments[3])) transport = candidate;
    require(transport, "no such transport");
    const std::byte* entry = nullptr;
    while (!(entry = OobStore(**segment).get(0, 1))) usleep(1000);
    Blob blob;
    net::Secret secret;
    memcpy(&blob, entry, sizeof blob);
    require(sodium_hex2bin(secret.key.data(), secret.key.size(), arguments[4], strlen(arguments[4]), nullptr, nullptr,
                           nullptr) == 0,
            "the secret cannot be read");
    const net::Identity identity = net::Identity::of(secret);
    size_t heap_used = FlagBlock::heap_bytes;
    auto sender = transport->connect({rank, 0, 0, 4, 128, segment->get(), &heap_used, &identity}, blob);
    require(sender.ok(), "no connection");
    for (uint64_t number = 0; number < 3; ++number) {
        auto slot = (*sender)->acquire();
        require(slot.ok() && *slot, "no credit");
        memset(slot->data, int(number), 100);
        require((*sender)->publish({100, number, uint32_t(number * 7)}).ok(), "not published");
    }
    for (;;) {
        auto through = (*sender)->progress();
        require(through.ok(), through.status().sentence().c_str());
        if (*through) break;
        usleep(1000);
    }
    printf("sent\n");
    fflush(stdout);
    for (;;) pause();
}
