/* unix_sockets.c: a transport plugin over Unix sockets. It connects ranks of one machine, also if Weft counts them as
 * different hosts.
 *
 * WEFT_TRANSPORT_PLUGIN=$PWD/libunix_sockets.so WEFT_TRANSPORTS=^shm weft run -n 2 weft perf all_reduce
 *
 * Each connection is a stream: the secret, then for each message a header and its bytes. The socket's buffer is the flow
 * control, so slots are the sender's memory. One-sided access copies between processes (process_vm_writev). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>
#include <weft/transport.h>

#define OFFERS 16

static _Thread_local char sentence[256];

static weftResult_t fails(weftResult_t result, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return result;
}
static const char* error(void) { return sentence; }

/* ---- The process ---- */

extern weftTransportPlugin_t weftTransportPlugin;
static const weftTransportHost_t* weft;

/* Names this machine's network namespace: abstract sockets reach no further. */
static uint32_t network_of_process(void) {
    char boot[64] = {0};
    struct stat space;
    FILE* file = fopen("/proc/sys/kernel/random/boot_id", "re");
    uint32_t hash = 2166136261u;
    if (file) {
        if (!fgets(boot, sizeof boot, file)) boot[0] = 0;
        fclose(file);
    }
    if (stat("/proc/self/ns/net", &space) == 0) hash ^= (uint32_t)space.st_ino;
    for (const char* at = boot; *at; ++at) hash = (hash ^ (uint8_t)*at) * 16777619u;
    return hash;
}

static weftResult_t init(const weftTransportHost_t* host) {
    weft = host;
    weftTransportPlugin.network = network_of_process();
    weft->log(0, "unix_sockets is ready");
    return weftSuccess;
}

static weftResult_t rail(int index, weftTransportRail_t* rail) {
    if (index != 0) return weftInvalidArgument;
    snprintf(rail->name, sizeof rail->name, "unix");
    snprintf(rail->detail, sizeof rail->detail, "abstract sockets of this machine");
    return weftSuccess;
}

/* ---- What both ends share ---- */

struct header {
    uint64_t bytes;
    uint64_t operation;
    uint32_t fingerprint;
    uint32_t magic;
};
#define MAGIC 0x77667573u

/* The handle holds the name of an abstract socket, which begins with a zero byte. */
static socklen_t address_of(const unsigned char* handle, struct sockaddr_un* address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, handle, 32);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 33);
}

static int would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/* The slots that the caller gives, or own ones. Message m uses slot m % depth. */
static char* slots_of(const weftTransportOptions_t* options, char** own) {
    *own = options->slots ? NULL : malloc((size_t)options->depth * options->slotBytes + 1);
    return options->slots ? options->slots : *own;
}

/* ---- The sender ---- */

struct outgoing {
    struct header header;
    const char* data;
};
struct sender {
    weftTransportOptions_t options;
    unsigned char handle[WEFT_TRANSPORT_HANDLE_BYTES];
    int socket;
    int connected;
    char *slots, *own_slots;
    struct outgoing* ring; /* of `depth` messages */
    uint64_t next;         /* message to be posted */
    uint64_t first;        /* the oldest one that the kernel has not taken */
    size_t done;           /* bytes of header and data of `first` that the kernel has taken */
    uint64_t transfers;
};

/* weftInProgress: the receiver's queue of connections is full. */
static weftResult_t connect_step(struct sender* sender) {
    struct sockaddr_un address;
    const socklen_t length = address_of(sender->handle, &address);
    if (sender->connected) return weftSuccess;
    if (connect(sender->socket, (struct sockaddr*)&address, length) != 0)
        return would_block(errno) ? weftInProgress : fails(weftRemoteError, "cannot connect: %s", strerror(errno));
    if (send(sender->socket, sender->options.secret, sizeof sender->options.secret, MSG_NOSIGNAL) !=
        (ssize_t)sizeof sender->options.secret)
        return fails(weftRemoteError, "cannot present the secret: %s", strerror(errno));
    sender->connected = 1;
    return weftSuccess;
}

static weftResult_t progress(void* object) {
    struct sender* sender = object;
    const weftResult_t connected = connect_step(sender);
    if (connected != weftSuccess) return sender->next == sender->first ? weftSuccess : connected;
    while (sender->first < sender->next) {
        struct outgoing* outgoing = &sender->ring[sender->first % (uint64_t)sender->options.depth];
        const size_t head = sizeof outgoing->header, whole = head + outgoing->header.bytes;
        while (sender->done < whole) {
            struct iovec parts[2];
            struct msghdr message = {.msg_iov = parts};
            if (sender->done < head)
                parts[message.msg_iovlen++] =
                    (struct iovec){(char*)&outgoing->header + sender->done, head - sender->done};
            const size_t skip = sender->done > head ? sender->done - head : 0;
            if (skip < outgoing->header.bytes)
                parts[message.msg_iovlen++] =
                    (struct iovec){(char*)outgoing->data + skip, outgoing->header.bytes - skip};
            const ssize_t taken = sendmsg(sender->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (taken < 0 && would_block(errno)) return weftInProgress;
            if (taken < 0) return fails(weftRemoteError, "the connection broke: %s", strerror(errno));
            sender->done += (size_t)taken;
        }
        ++sender->first;
        sender->done = 0;
    }
    return weftSuccess;
}

static void close_sender(void* object) {
    struct sender* sender = object;
    (void)progress(sender);
    close(sender->socket);
    free(sender->ring);
    free(sender->own_slots);
    free(sender);
}

static weftResult_t make_sender(const weftTransportOptions_t* options, const unsigned char* handle, void** made) {
    struct sender* sender = calloc(1, sizeof *sender);
    if (!sender) return fails(weftSystemError, "there is no memory for a sender");
    sender->options = *options;
    memcpy(sender->handle, handle, sizeof sender->handle);
    sender->ring = calloc((size_t)options->depth, sizeof *sender->ring);
    sender->slots = slots_of(options, &sender->own_slots);
    sender->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    weftResult_t result = weftSuccess;
    if (!sender->ring || !sender->slots) result = fails(weftSystemError, "there is no memory for slots");
    if (sender->socket < 0) result = fails(weftSystemError, "no socket: %s", strerror(errno));
    if (result == weftSuccess) result = connect_step(sender);
    if (result != weftSuccess && result != weftInProgress) {
        close_sender(sender);
        return result;
    }
    *made = sender;
    return weftSuccess;
}

static weftResult_t acquire(void* object, weftTransportSlot_t* slot) {
    struct sender* sender = object;
    const uint64_t depth = (uint64_t)sender->options.depth;
    if (sender->next - sender->first == depth) {
        const weftResult_t moved = progress(sender);
        if (moved != weftSuccess && moved != weftInProgress) return moved;
        if (sender->next - sender->first == depth) return weftInProgress;
    }
    slot->data = sender->slots + sender->next % depth * sender->options.slotBytes;
    slot->capacity = sender->options.slotBytes;
    return weftSuccess;
}

static weftResult_t post(void* object, const void* data, void* memory, const weftTransportMessage_t* message) {
    struct sender* sender = object;
    (void)memory; /* the kernel reads any memory */
    weftTransportSlot_t slot;
    const weftResult_t credit = acquire(sender, &slot);
    if (credit != weftSuccess) return credit;
    struct outgoing* outgoing = &sender->ring[sender->next++ % (uint64_t)sender->options.depth];
    outgoing->header = (struct header){message->bytes, message->operation, message->fingerprint, MAGIC};
    outgoing->data = data;
    const weftResult_t moved = progress(sender);
    return moved == weftInProgress ? weftSuccess : moved;
}

static weftResult_t publish(void* object, const weftTransportMessage_t* message) {
    struct sender* sender = object;
    return post(sender, sender->slots + sender->next % (uint64_t)sender->options.depth * sender->options.slotBytes,
                NULL, message);
}

static uint64_t sent(void* object) { return ((struct sender*)object)->first; }

static void sender_wakeups(void* object, weftTransportWakeups_t* wakeups) {
    struct sender* sender = object;
    if (!sender->connected || sender->first == sender->next) return;
    wakeups->descriptors[wakeups->count++] = (struct pollfd){sender->socket, POLLOUT, 0};
}

/* ---- The receiver ---- */

struct offer {
    void* target;
    size_t capacity;
    uint64_t message; /* one more than its number; 0: none */
};
struct incoming {
    struct header header;
    char* target;
    size_t capacity; /* at `target` */
};
struct receiver {
    weftTransportOptions_t options;
    int listener, socket; /* -1: none */
    unsigned char proof[WEFT_TRANSPORT_SECRET_BYTES];
    size_t proved; /* bytes of the proof */
    char *slots, *own_slots;
    struct offer offers[OFFERS];
    struct incoming* ring; /* of `depth` messages */
    uint64_t released;     /* messages */
    uint64_t arrived;      /* messages, whole */
    size_t done;           /* bytes of header and data of message `arrived` */
};

static void close_receiver(void* object) {
    struct receiver* receiver = object;
    if (receiver->listener >= 0) close(receiver->listener);
    if (receiver->socket >= 0) close(receiver->socket);
    free(receiver->ring);
    free(receiver->own_slots);
    free(receiver);
}

static weftResult_t make_receiver(const weftTransportOptions_t* options, unsigned char* handle, void** made) {
    unsigned char random[16];
    char name[33];
    struct sockaddr_un address;
    struct receiver* receiver = calloc(1, sizeof *receiver);
    if (!receiver) return fails(weftSystemError, "there is no memory for a receiver");
    receiver->options = *options;
    receiver->socket = -1;
    receiver->ring = calloc((size_t)options->depth, sizeof *receiver->ring);
    receiver->slots = slots_of(options, &receiver->own_slots);
    receiver->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    weftResult_t result = weftSuccess;
    if (!receiver->ring || !receiver->slots) result = fails(weftSystemError, "there is no memory for slots");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        result = fails(weftSystemError, "no random name: %s", strerror(errno));
    for (int i = 0; i < 16; ++i) snprintf(name + 2 * i, 3, "%02x", random[i]);
    memcpy(handle, name, 32);
    const socklen_t length = address_of(handle, &address);
    if (receiver->listener < 0 || bind(receiver->listener, (struct sockaddr*)&address, length) != 0 ||
        listen(receiver->listener, 8) != 0)
        result = fails(weftSystemError, "cannot listen: %s", strerror(errno));
    if (result == weftSuccess)
        *made = receiver;
    else
        close_receiver(receiver);
    return result;
}

/* Accepts the sender. A stranger, who does not know the secret, is dropped. */
static weftResult_t accept_step(struct receiver* receiver) {
    while (receiver->listener >= 0) {
        if (receiver->socket < 0) {
            receiver->socket = accept4(receiver->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            receiver->proved = 0;
            if (receiver->socket < 0)
                return would_block(errno) ? weftInProgress
                                          : fails(weftSystemError, "cannot accept: %s", strerror(errno));
        }
        const ssize_t got = recv(receiver->socket, receiver->proof + receiver->proved,
                                 sizeof receiver->proof - receiver->proved, MSG_DONTWAIT);
        if (got < 0 && would_block(errno)) return weftInProgress;
        if (got > 0) receiver->proved += (size_t)got;
        if (got > 0 && receiver->proved < sizeof receiver->proof) continue;
        unsigned char differs = got <= 0;
        for (size_t i = 0; i < sizeof receiver->proof; ++i) differs |= receiver->proof[i] ^ receiver->options.secret[i];
        if (differs) {
            close(receiver->socket);
            receiver->socket = -1;
            continue;
        }
        close(receiver->listener);
        receiver->listener = -1;
    }
    return weftSuccess;
}

/* Where the data of the message go that is arriving; its header is there. */
static void choose_target(struct receiver* receiver, struct incoming* incoming) {
    incoming->target =
        receiver->slots + receiver->arrived % (uint64_t)receiver->options.depth * receiver->options.slotBytes;
    incoming->capacity = receiver->options.slotBytes;
    for (int i = 0; i < OFFERS; ++i) {
        const struct offer* offer = &receiver->offers[i];
        if (offer->message != receiver->arrived + 1 || offer->capacity < incoming->header.bytes) continue;
        incoming->target = offer->target;
        incoming->capacity = offer->capacity;
    }
}

/* Receives the rest of message `arrived`, for which there is a free slot. */
static weftResult_t receive_next(struct receiver* receiver) {
    struct incoming* incoming = &receiver->ring[receiver->arrived % (uint64_t)receiver->options.depth];
    const size_t head = sizeof incoming->header;
    while (receiver->done < head || receiver->done < head + incoming->header.bytes) {
        const int of_head = receiver->done < head;
        char* to = of_head ? (char*)&incoming->header + receiver->done : incoming->target + (receiver->done - head);
        const size_t left = (of_head ? head : head + incoming->header.bytes) - receiver->done;
        const ssize_t got = recv(receiver->socket, to, left, MSG_DONTWAIT);
        if (got < 0 && would_block(errno)) return weftInProgress;
        if (got < 0) return fails(weftRemoteError, "the connection broke: %s", strerror(errno));
        if (got == 0) return fails(weftRemoteError, "the other end closed the connection");
        receiver->done += (size_t)got;
        if (receiver->done != head) continue;
        if (incoming->header.magic != MAGIC || incoming->header.bytes > receiver->options.slotBytes)
            return fails(weftRemoteError, "the stream is damaged");
        choose_target(receiver, incoming);
    }
    receiver->done = 0;
    ++receiver->arrived;
    return weftSuccess;
}

static weftResult_t look_ahead(void* object, uint64_t ahead, weftTransportSlot_t* slot,
                               weftTransportMessage_t* message) {
    struct receiver* receiver = object;
    const uint64_t wanted = receiver->released + ahead;
    const weftResult_t accepted = accept_step(receiver);
    if (accepted != weftSuccess) return accepted;
    while (receiver->arrived <= wanted) {
        const weftResult_t came = receive_next(receiver);
        if (came != weftSuccess) return came;
    }
    const struct incoming* incoming = &receiver->ring[wanted % (uint64_t)receiver->options.depth];
    *slot = (weftTransportSlot_t){incoming->target, incoming->capacity};
    *message =
        (weftTransportMessage_t){incoming->header.bytes, incoming->header.operation, incoming->header.fingerprint, 0};
    return weftSuccess;
}

static weftResult_t receive(void* object, weftTransportSlot_t* slot, weftTransportMessage_t* message) {
    return look_ahead(object, 0, slot, message);
}

static weftResult_t release(void* object) {
    struct receiver* receiver = object;
    for (int i = 0; i < OFFERS; ++i)
        if (receiver->offers[i].message == receiver->released + 1) receiver->offers[i].message = 0;
    ++receiver->released;
    return weftSuccess;
}

static weftResult_t offer(void* object, void* target, size_t capacity, void* memory, uint64_t message) {
    struct receiver* receiver = object;
    (void)memory;
    const int begun = receiver->done >= sizeof(struct header);
    if (message < receiver->arrived + (begun ? 1 : 0)) return weftInProgress;
    for (int i = 0; i < OFFERS; ++i) {
        if (receiver->offers[i].message != 0) continue;
        receiver->offers[i] = (struct offer){target, capacity, message + 1};
        return weftSuccess;
    }
    return weftInProgress;
}

static void receiver_wakeups(void* object, weftTransportWakeups_t* wakeups) {
    struct receiver* receiver = object;
    if (receiver->arrived > receiver->released) wakeups->ready = 1;
    wakeups->descriptors[wakeups->count++] =
        (struct pollfd){receiver->socket >= 0 ? receiver->socket : receiver->listener, POLLIN, 0};
}

/* ---- Memory ---- */

struct range {
    char* data;
    uint64_t bytes;
    int64_t process;
};

static weftResult_t register_memory(const weftTransportMemory_t* memory, void** made) {
    struct range* range = malloc(sizeof *range);
    if (!range) return fails(weftSystemError, "there is no memory for a registration");
    *range = (struct range){memory->data, memory->bytes, getpid()};
    *made = range;
    return weftSuccess;
}

static weftResult_t memory_key(void* memory, unsigned char* key, size_t* bytes) {
    memcpy(key, memory, sizeof(struct range));
    *bytes = sizeof(struct range);
    return weftSuccess;
}

static weftResult_t attach(void* sender, const unsigned char* key, size_t bytes, void** remote) {
    (void)sender;
    if (bytes != sizeof(struct range)) return fails(weftInvalidArgument, "a key has %zu bytes", bytes);
    struct range* range = malloc(sizeof *range);
    if (!range) return fails(weftSystemError, "there is no memory for a key");
    memcpy(range, key, bytes);
    *remote = range;
    return weftSuccess;
}

static weftResult_t copy(struct sender* sender, int puts, char* data, struct range* range, size_t offset,
                         size_t bytes) {
    if (offset > range->bytes || bytes > range->bytes - offset)
        return fails(weftInvalidArgument, "%zu bytes at %zu are not in the peer's %zu", bytes, offset,
                     (size_t)range->bytes);
    for (size_t done = 0; done < bytes;) {
        const struct iovec own = {data + done, bytes - done}, theirs = {range->data + offset + done, bytes - done};
        const ssize_t moved = puts ? process_vm_writev((pid_t)range->process, &own, 1, &theirs, 1, 0)
                                   : process_vm_readv((pid_t)range->process, &own, 1, &theirs, 1, 0);
        if (moved <= 0)
            return fails(weftRemoteError, "the kernel did not copy between the processes: %s", strerror(errno));
        done += (size_t)moved;
    }
    ++sender->transfers;
    return weftSuccess;
}

static weftResult_t put(void* sender, const void* data, void* memory, void* remote, size_t offset, size_t bytes) {
    (void)memory;
    return copy(sender, 1, (char*)data, remote, offset, bytes);
}

static weftResult_t get(void* sender, void* data, void* memory, void* remote, size_t offset, size_t bytes) {
    (void)memory;
    return copy(sender, 0, data, remote, offset, bytes);
}

static uint64_t transferred(void* sender) { return ((struct sender*)sender)->transfers; }

weftTransportPlugin_t weftTransportPlugin = {
    .size = sizeof(weftTransportPlugin_t),
    .abi = WEFT_TRANSPORT_ABI,
    .name = "unix_sockets",
    .capabilities = weftTransportPosts | weftTransportOffers | weftTransportGivenSlots | weftTransportOneSided |
                    weftTransportSleeps | weftTransportRemote,
    .init = init,
    .error = error,
    .rail = rail,
    .listen = make_receiver,
    .connect = make_sender,
    .closeSender = close_sender,
    .closeReceiver = close_receiver,
    .acquire = acquire,
    .publish = publish,
    .progress = progress,
    .receive = receive,
    .release = release,
    .post = post,
    .sent = sent,
    .senderWakeups = sender_wakeups,
    .receiverWakeups = receiver_wakeups,
    .offer = offer,
    .registerMemory = register_memory,
    .deregisterMemory = free,
    .memoryKey = memory_key,
    .attach = attach,
    .detach = free,
    .put = put,
    .get = get,
    .transferred = transferred,
    .lookAhead = look_ahead,
};
