// toy_net.cpp: a network plugin of NCCL over Unix sockets, built once for each version of the interface (TOY_VERSION). It
// aborts where its caller breaks a rule of the interface. TOY_NET names defects, or behaviours that plugins may have.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transports/nccl_net/abi.hpp"

namespace {

namespace abi = weft::internal::nccl_net::abi;
constexpr int served = TOY_VERSION >= abi::oldest ? TOY_VERSION : abi::oldest;  // 7 is a plugin that is too old
using Functions = abi::Functions<served>;
constexpr abi::Answer system_error = 2, invalid_argument = 4, remote_error = 6;

abi::Log log_line;
bool does(const char* behaviour) {
    const char* wanted = getenv("TOY_NET");
    return wanted && ("," + std::string(wanted) + ",").find("," + std::string(behaviour) + ",") != std::string::npos;
}
abi::Answer warn(abi::Answer answer, const char* text) {
    log_line(abi::log_warn, 0, __FILE__, __LINE__, "toy: %s", text);
    return answer;
}
void require(bool holds, const char* rule) {
    if (holds) return;
    fprintf(stderr, "toy_net: a rule of the interface was broken: %s\n", rule);
    abort();
}

std::atomic<int> unclean_closes{0};  // of comms with requests
std::atomic<int> listens{0};

struct Registration {
    std::byte* data;
    size_t bytes;
    int type;
};
// Of both directions: a credit, and the header of a message.
struct Frame {
    int tag;
    size_t bytes;
};
struct Comm;
struct Request {
    Comm* comm = nullptr;
    Frame frame{};
    std::byte* data = nullptr;
    std::byte* shown = nullptr;        // where device memory shows its data, after iflush
    std::vector<std::byte> unflushed;  // until then
    size_t moved = 0;                  // bytes of frame and data
    size_t got = 0;                    // size of the data that came
    int turns = 0;                     // calls of test until it is done
    bool flushes = false;
    bool done = false;
};
struct Comm {
    int fd = -1;
    int device = 0;
    bool sends = false;
    std::atomic<bool> busy{false};
    std::set<Registration*> registered;
    int registrations = 0;            // so far
    std::deque<Frame> credits;        // of a sender: the targets that the receiver has posted
    std::vector<std::byte> incoming;  // of a sender: a part of a credit
    std::vector<std::byte> outgoing;  // of a receiver: credits that the socket did not take
    Frame came{};                     // of a receiver: the message that it reads
    std::deque<Request*> queue;       // in order
    std::vector<std::pair<std::byte*, std::vector<std::byte>>> unshown;
    std::set<Request*> live;
    int count = 0;  // requests that were done
};
// One thread at a time.
struct Use {
    explicit Use(Comm* of) : comm(of) { require(!comm->busy.exchange(true), "one thread at a time uses a comm"); }
    ~Use() { comm->busy = false; }
    Comm* comm;
};
struct Listening {
    int fd;
    int device;
    int turns = 0;
};
struct Handle {
    char name[100];
    int turns;  // calls of connect with this handle
};
static_assert(sizeof(Handle) <= abi::handle_bytes);

sockaddr_un address_of(const char* name, socklen_t* bytes) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name, strlen(name));
    *bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + strlen(name));
    return address;
}

abi::Answer devices(int* count) {
    *count = does("none") ? 0 : 2;
    return abi::success;
}
abi::Answer listen_at(int device, void* memory, void** listening) {
    ++listens;
    if (does("listen")) return warn(system_error, "no port is left");
    static std::atomic<int> number{0};
    auto* handle = static_cast<Handle*>(memory);
    *handle = {};
    snprintf(handle->name, sizeof handle->name, "toy_net.%d.%d", int(getpid()), number++);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(handle->name, &bytes);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 || listen(fd, 8) != 0)
        return warn(system_error, strerror(errno));
    *listening = new Listening{fd, device};
    return abi::success;
}
abi::Answer connect_to(int device, void* memory, void** sending, void** in_kernels) {
    require(*in_kernels == nullptr, "the handle for kernels is null at first");
    auto* handle = static_cast<Handle*>(memory);
    *sending = nullptr;
    if (does("connect")) return remote_error;
    if (++handle->turns < 3 || does("never")) return abi::success;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(handle->name, &bytes);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        const int why = errno;
        close(fd);
        return why == EAGAIN ? abi::success : warn(remote_error, strerror(why));
    }
    auto* comm = new Comm;
    comm->fd = fd;
    comm->device = device;
    comm->sends = true;
    *sending = comm;
    return abi::success;
}
abi::Answer accept_from(void* memory, void** receiving, void**) {
    auto* listening = static_cast<Listening*>(memory);
    *receiving = nullptr;
    if (++listening->turns < 3) return abi::success;
    const int fd = accept4(listening->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return errno == EAGAIN ? abi::success : warn(system_error, strerror(errno));
    auto* comm = new Comm;
    comm->fd = fd;
    comm->device = listening->device;
    *receiving = comm;
    return abi::success;
}

abi::Answer reg(void* memory, void* data, size_t bytes, int type, void** handle) {
    if (does("registration")) return warn(system_error, "the limit of locked memory is reached");
    if (does("refuse_device") && type == abi::cuda_pointer)
        return warn(system_error, "the peer memory module is missing");
    auto* comm = static_cast<Comm*>(memory);
    if (type == abi::cuda_pointer && comm->device == 0 && does("refuse_device0"))
        return warn(system_error, "the NIC is behind another switch");
    if (++comm->registrations == 2 && does("refuse_second")) return warn(system_error, "the NIC's table is full");
    auto* registration = new Registration{static_cast<std::byte*>(data), bytes, type};
    comm->registered.insert(registration);
    *handle = registration;
    return abi::success;
}
abi::Answer reg_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t, int fd, void** handle) {
    struct stat status;
    if (fstat(fd, &status) != 0) return warn(invalid_argument, "the dma-buf is closed");
    return reg(comm, data, bytes, type, handle);
}
abi::Answer dereg(void* memory, void* handle) {
    require(static_cast<Comm*>(memory)->registered.erase(static_cast<Registration*>(handle)) == 1,
            "memory is deregistered once, in the comm that registered it");
    delete static_cast<Registration*>(handle);
    return abi::success;
}

bool holds(Comm* comm, void* handle, const void* data, size_t bytes) {
    auto* registration = static_cast<Registration*>(handle);
    const auto* begin = static_cast<const std::byte*>(data);
    return comm->registered.count(registration) == 1 && begin >= registration->data &&
           begin + bytes <= registration->data + registration->bytes;
}
bool can_take(const Comm* comm) { return !does("limit") || comm->live.size() < 3; }
Request* make(Comm* comm, Frame frame, void* data) {
    require(comm->live.size() < abi::requests_most, "a comm has at most 32 requests");
    auto* request = new Request;
    request->comm = comm;
    request->frame = frame;
    request->data = request->shown = static_cast<std::byte*>(data);
    comm->live.insert(request);
    return request;
}

bool broken(ssize_t got) { return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR); }

void write_credits(Comm* comm) {
    while (!comm->outgoing.empty()) {
        const ssize_t sent = send(comm->fd, comm->outgoing.data(), comm->outgoing.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        comm->outgoing.erase(comm->outgoing.begin(), comm->outgoing.begin() + sent);
    }
}
bool read_credits(Comm* comm) {
    std::byte bytes[4096];
    const ssize_t got = recv(comm->fd, bytes, sizeof bytes, 0);
    if (got > 0) comm->incoming.insert(comm->incoming.end(), bytes, bytes + got);
    while (comm->incoming.size() >= sizeof(Frame)) {
        Frame frame;
        memcpy(&frame, comm->incoming.data(), sizeof frame);
        comm->incoming.erase(comm->incoming.begin(), comm->incoming.begin() + sizeof frame);
        comm->credits.push_back(frame);
    }
    return !broken(got);
}

// Moves the request's frame and data; false: the socket is broken.
bool move_out(Request* request) {
    const size_t whole = sizeof(Frame) + request->frame.bytes;
    while (request->moved < whole) {
        const bool of_frame = request->moved < sizeof(Frame);
        const std::byte* from = of_frame ? reinterpret_cast<std::byte*>(&request->frame) + request->moved
                                         : request->data + (request->moved - sizeof(Frame));
        const ssize_t sent =
            send(request->comm->fd, from, (of_frame ? sizeof(Frame) : whole) - request->moved, MSG_NOSIGNAL);
        if (sent <= 0) return !broken(sent);
        request->moved += size_t(sent);
    }
    request->got = request->frame.bytes;
    request->done = true;
    return true;
}
bool move_in(Request* request) {
    Frame& came = request->comm->came;
    for (;;) {
        const bool of_frame = request->moved < sizeof(Frame);
        if (!of_frame) {
            require(came.tag == request->frame.tag && came.bytes <= request->frame.bytes, "messages fit their targets");
            request->got = came.bytes;
            if (request->moved == sizeof(Frame) + came.bytes) break;
        }
        std::byte* to = of_frame ? reinterpret_cast<std::byte*>(&came) + request->moved
                                 : request->data + (request->moved - sizeof(Frame));
        const ssize_t got =
            recv(request->comm->fd, to, (of_frame ? sizeof(Frame) : sizeof(Frame) + came.bytes) - request->moved, 0);
        if (got <= 0) return !broken(got);
        request->moved += size_t(got);
    }
    request->done = true;
    return true;
}

abi::Answer isend(void* memory, void* data, Functions::Size bytes, int tag, void* handle, void** request) {
    auto* comm = static_cast<Comm*>(memory);
    const Use use(comm);
    require(holds(comm, handle, data, size_t(bytes)), "data of isend are registered in this comm");
    *request = nullptr;
    if (!read_credits(comm) && comm->credits.empty()) return warn(remote_error, "the peer closed the connection");
    if (comm->credits.empty() || !can_take(comm)) return abi::success;
    require(comm->credits.front().tag == tag && size_t(bytes) <= comm->credits.front().bytes,
            "messages are sent in the order of their targets, and fit them");
    comm->credits.pop_front();
    Request* made = make(comm, {tag, size_t(bytes)}, data);
    comm->queue.push_back(made);
    *request = made;
    return abi::success;
}
abi::Answer irecv(void* memory, int count, void** data, Functions::Size* bytes, int* tags, void** handles,
                  void** request) {
    auto* comm = static_cast<Comm*>(memory);
    const Use use(comm);
    require(count == 1, "a device of maxRecvs 1 receives one message at a time");
    require(*request == nullptr, "the request is null before irecv");
    require(holds(comm, handles[0], data[0], size_t(bytes[0])), "targets of irecv are registered in this comm");
    if (!can_take(comm)) return abi::success;
    Request* made = make(comm, {tags[0], size_t(bytes[0])}, data[0]);
    if (static_cast<Registration*>(handles[0])->type == abi::cuda_pointer) {
        made->unflushed.resize(size_t(bytes[0]));
        made->data = made->unflushed.data();
    }
    comm->queue.push_back(made);
    const auto* frame = reinterpret_cast<const std::byte*>(&made->frame);
    comm->outgoing.insert(comm->outgoing.end(), frame, frame + sizeof(Frame));
    write_credits(comm);
    *request = made;
    return abi::success;
}

abi::Answer iflush(void* memory, int, void** data, int* bytes, void** handles, void** request) {
    auto* comm = static_cast<Comm*>(memory);
    const Use use(comm);
    require(holds(comm, handles[0], data[0], size_t(bytes[0])), "what is flushed is registered in this comm");
    if (does("flush")) return warn(system_error, "the flush was refused");
    for (const auto& [shown, unflushed] : comm->unshown) memcpy(shown, unflushed.data(), unflushed.size());
    comm->unshown.clear();
    Request* made = make(comm, {}, nullptr);
    made->turns = 2;
    made->flushes = true;
    *request = made;
    return abi::success;
}
abi::Answer test(void* memory, int* done, int* sizes) {
    auto* request = static_cast<Request*>(memory);
    Comm* comm = request->comm;
    const Use use(comm);
    *done = 0;
    if (does("stuck")) return abi::success;
    if (request->flushes && does("flush_late")) return warn(remote_error, "the flush failed");
    if (request->turns > 0 && --request->turns == 0) request->done = true;
    write_credits(comm);
    while (!comm->queue.empty() && !request->done) {
        Request* first = comm->queue.front();
        if (!(comm->sends ? move_out(first) : move_in(first)))
            return warn(remote_error, "the peer closed the connection");
        if (!first->done) break;
        comm->queue.pop_front();
    }
    if (!request->done) return abi::success;
    if (does("late") && ++comm->count > 10) return warn(remote_error, "the device vanished");
    if (!request->unflushed.empty()) {
        request->unflushed.resize(request->got);
        comm->unshown.emplace_back(request->shown, std::move(request->unflushed));
    }
    *done = 1;
    if (sizes) sizes[0] = int(does("short") ? request->got / 2 : does("posted") ? request->frame.bytes : request->got);
    comm->live.erase(request);
    delete request;
    return abi::success;
}

abi::Answer close_comm(void* memory) {
    auto* comm = static_cast<Comm*>(memory);
    require(comm->registered.empty(), "registrations end before their comm");
    unclean_closes += !comm->live.empty();
    for (const Request* each : comm->live) delete each;
    close(comm->fd);
    delete comm;
    return abi::success;
}
abi::Answer close_listening(void* memory) {
    auto* listening = static_cast<Listening*>(memory);
    close(listening->fd);
    delete listening;
    return abi::success;
}

abi::Answer start(abi::Log log) {
    log_line = log;
    log(abi::log_info, 0, __FILE__, __LINE__, "toy: version %d = %s", served, "here");
    return does("init") ? warn(system_error, "no driver is loaded") : abi::success;
}

// The functions whose arguments differ by version.
template <int version>
struct By {
    static abi::Answer properties(int device, abi::Properties<version>* all) {
        static char names[2][8] = {"toy0", "toy1"};
        const auto fill = [&](auto& its) {
            its.name = names[device];
            its.pointers =
                does("no_host") ? abi::cuda_pointer : abi::host_pointer | abi::cuda_pointer | abi::dma_buf_pointer;
            its.mbps = 100'000;
            its.comms_most = 1024;
            its.receives_most = 1;
            its.device_type = does("unpack") ? 1 : abi::host_device;
            if constexpr (version >= 9) its.force_flush = does("force_flush");
            if constexpr (version >= 9) its.message_bytes_most = does("small") ? 1024 : size_t(1) << 40;
        };
        if constexpr (version == 11)
            fill(all->first);
        else
            fill(*all);
        return abi::success;
    }
};

Functions filled() {
    Functions all{};
    all.name = "Toy";
    all.devices = devices;
    all.get_properties = By<served>::properties;
    all.accept = accept_from;
    all.reg_mr = reg;
    all.reg_mr_dma_buf = reg_dma_buf;
    all.dereg_mr = dereg;
    all.iflush = iflush;
    all.test = test;
    all.close_send = all.close_recv = close_comm;
    all.close_listen = close_listening;
#if TOY_VERSION >= 11
    static int context;
    all.init = [](void** its, uint64_t, abi::Config* config, abi::Log log, abi::Profiler profiler) {
        require(config && config->traffic_class == -1 && profiler, "init gets a config and a profiler");
        *its = &context;
        return start(log);
    };
    all.listen = [](void* its, int device, void* handle, void** listening) {
        require(its == &context, "listen gets the context of init");
        return listen_at(device, handle, listening);
    };
    all.connect = [](void* its, int device, void* handle, void** sending, void** in_kernels) {
        require(its == &context, "connect gets the context of init");
        return connect_to(device, handle, sending, in_kernels);
    };
#elif TOY_VERSION == 10
    all.init = [](abi::Log log, abi::Profiler profiler) {
        require(profiler, "init gets a profiler");
        return start(log);
    };
    all.listen = listen_at;
    all.connect = [](int device, abi::Config* config, void* handle, void** sending, void** in_kernels) {
        require(config && config->traffic_class == -1, "connect gets a config");
        return connect_to(device, handle, sending, in_kernels);
    };
#else
    all.init = start;
    all.listen = listen_at;
    all.connect = connect_to;
#endif
#if TOY_VERSION >= 10
    all.isend = [](void* comm, void* data, size_t bytes, int tag, void* handle, void*, void** request) {
        return isend(comm, data, bytes, tag, handle, request);
    };
    all.irecv = [](void* comm, int count, void** data, size_t* bytes, int* tags, void** handles, void**,
                   void** request) { return irecv(comm, count, data, bytes, tags, handles, request); };
#else
    all.isend = isend;
    all.irecv = irecv;
#endif
    return all;
}

}  // namespace

#define TOY_SYMBOL_OF(version) ncclNetPlugin_v##version
#define TOY_SYMBOL(version) TOY_SYMBOL_OF(version)
extern "C" {
[[gnu::visibility("default")]] int toy_net_unclean_closes();
int toy_net_unclean_closes() { return unclean_closes; }
[[gnu::visibility("default")]] int toy_net_listens();
int toy_net_listens() { return listens; }
[[gnu::visibility("default")]] extern const Functions TOY_SYMBOL(TOY_VERSION);
const Functions TOY_SYMBOL(TOY_VERSION) = filled();
}
