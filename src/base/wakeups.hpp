// wakeups.hpp: the events that end the sleep of a thread that waits for connections.
#pragma once
#include <poll.h>

#include <vector>

namespace weft::internal {

// Filled by the connections that a thread waits for, directly before it sleeps. A value that its owner reuses.
struct Wakeups {
    std::vector<pollfd> descriptors;
    bool ready = false;    // something arrived while a connection was armed: do not sleep
    bool by_time = false;  // a connection has no descriptor: sleep briefly, then look again

    void clear() {
        descriptors.clear();
        ready = by_time = false;
    }
};

}  // namespace weft::internal
