/* transport.h: the interface of a transport plugin: a shared object that moves messages between ranks.
 *
 * WEFT_TRANSPORT_PLUGIN names the plugins. Each exports a weftTransportPlugin_t by the name weftTransportPlugin. Two ranks
 * use a plugin if both have loaded it and the networks in the structs are equal; otherwise they use another transport.
 * Connection: it has one direction. The sender fills slots, the receiver drains them, and a released slot returns as a
 * credit. Messages have numbers, from 0, in the order of posting, and arrive in this order.
 * Results: weftSuccess, weftInProgress ("not yet": Weft calls again), or an error; error() then has the sentence. An error
 * of a connection is final. No call blocks, and Weft watches deadlines and dead processes by itself.
 * Threads: the calls of one connection are never concurrent, nor those of connections of one rank. Connections of
 * different ranks, and calls on memory, may be in different threads at the same time.
 * Functions marked optional may be NULL. A capability bit promises its functions.
 * Guide: docs/guide/transport-plugins.md. Example: examples/transport_plugin. */
#ifndef WEFT_TRANSPORT_H
#define WEFT_TRANSPORT_H

#include <poll.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface. It changes if a plugin must be built again. */
#define WEFT_TRANSPORT_ABI 1
/* The name of the symbol that a plugin exports. */
#define WEFT_TRANSPORT_SYMBOL "weftTransportPlugin"

#define WEFT_TRANSPORT_HANDLE_BYTES 128 /* of a receiver's address */
#define WEFT_TRANSPORT_SECRET_BYTES 32
#define WEFT_TRANSPORT_KEY_BYTES 256     /* at most, of registered memory */
#define WEFT_TRANSPORT_DESCRIPTORS_MAX 8 /* at most, of one end of a connection */

/* Abilities of a transport beyond slots in its own memory: bits of weftTransportPlugin_t.capabilities. */
typedef WEFT_ENUM{
    weftTransportPosts = 1,       /* post and sent */
    weftTransportOffers = 2,      /* offer */
    weftTransportRegisters = 4,   /* memory of post, offer, put, get and given slots must be registered */
    weftTransportDevice = 8,      /* registerMemory takes device memory */
    weftTransportGivenSlots = 16, /* uses weftTransportOptions_t.slots */
    weftTransportOneSided = 32,   /* memoryKey, attach, detach, put, get and transferred */
    weftTransportSleeps = 64,     /* senderWakeups and receiverWakeups; otherwise Weft looks by time */
    weftTransportRemote = 128     /* connects ranks of different hosts */
} weftTransportCapability_t;

/* The kind of a range of memory. */
typedef WEFT_ENUM{weftTransportSlots = 0, weftTransportUser = 1, weftTransportPinned = 2,
                  weftTransportDeviceMemory = 3} weftTransportMemoryKind_t;

/* Functions of Weft for the plugin. It grows at its end only; `size` is the size in Weft. */
typedef struct {
    size_t size;
    int abi; /* WEFT_TRANSPORT_ABI of the library */
    /* Writes a line of the log; any thread. `warning`: not 0 at level WARN, otherwise at INFO. `text`: without a newline. */
    void (*log)(int warning, const char* text);
} weftTransportHost_t;

/* One connection, as its two ends describe it. It grows at its end only; `size` is the size in Weft. */
typedef struct {
    size_t size;
    int rank; /* this end */
    int peer; /* the other end */
    int channel;
    int depth;        /* slots: messages that may be on their way */
    size_t slotBytes; /* no message is larger */
    /* Equal at both ends of this connection, and known to no other process. A plugin proves it to its peer. */
    unsigned char secret[WEFT_TRANSPORT_SECRET_BYTES];
    /* weftTransportGivenSlots: `depth` times `slotBytes` bytes, valid until the end is closed; message m uses slot
     * m % depth. NULL: the transport's own slots. */
    void* slots;
    void* slotMemory; /* the registration that holds them, or NULL */
} weftTransportOptions_t;

/* One buffer of a connection. */
typedef struct {
    void* data;
    size_t capacity; /* bytes */
} weftTransportSlot_t;

/* The header of a message. A plugin carries it unchanged. */
typedef struct {
    uint64_t bytes; /* of the message's data; at most slotBytes */
    uint64_t operation;
    uint32_t fingerprint;
    uint32_t reserved; /* 0 */
} weftTransportMessage_t;

/* A range of memory to register. It grows at its end only; `size` is the size in Weft. */
typedef struct {
    size_t size;
    void* data;
    size_t bytes;
    weftTransportMemoryKind_t kind;
    int device;            /* of device memory: its CUDA device; otherwise -1 */
    int dmaBuf;            /* a descriptor of the dma-buf with this memory, which the caller closes; -1: none */
    uint64_t dmaBufOffset; /* of `data` in the dma-buf, in bytes */
} weftTransportMemory_t;

/* A NIC, port or interface, for `weft info`. It grows at its end only; `size` is the size in Weft. */
typedef struct {
    size_t size;
    char name[64];
    char detail[192]; /* an address, or a sentence about the choice */
    char whyNot[192]; /* not empty: the rail is not used, for this reason */
    int64_t mbps;     /* 0: unknown */
} weftTransportRail_t;

/* Descriptors that wake a thread that waits for one end of a connection. Weft sets all fields to 0. */
typedef struct {
    struct pollfd descriptors[WEFT_TRANSPORT_DESCRIPTORS_MAX];
    int count; /* of descriptors; 0: nothing is awaited here */
    int ready; /* 1: something arrived while the connection was armed, so the thread must not sleep */
} weftTransportWakeups_t;

/* The plugin. Set `size` to sizeof(weftTransportPlugin_t) and `abi` to WEFT_TRANSPORT_ABI. Weft reads it when init has
 * returned, and keeps no copy of strings. It grows at its end only: Weft takes functions beyond `size` as NULL. Functions
 * that were added after the first version say so. */
typedef struct {
    size_t size;
    int abi;
    const char* name; /* for WEFT_TRANSPORTS, logs and `weft info`: letters, digits, `_`, `-`; another than shm, tcp */
    uint32_t capabilities; /* weftTransportCapability_t */
    uint32_t network;      /* equal where ranks can reach each other; init may set it */

    /* Prepares the process: called once, and in a child after fork once more, which must forget the parent's state.
     * `host`: valid until the process ends. An error: the plugin cannot be used here. */
    weftResult_t (*init)(const weftTransportHost_t* host);
    /* The sentence of the last error in this thread, without a final stop. Valid until the thread's next call. */
    const char* (*error)(void);
    /* Optional. Describes rail `index`, from 0. weftInvalidArgument: there is no such rail. Any thread. */
    weftResult_t (*rail)(int index, weftTransportRail_t* rail);

    /* Makes the receiving end `*receiver`, and writes its address to `handle`. Weft carries the address to the sender. */
    weftResult_t (*listen)(const weftTransportOptions_t* options, unsigned char handle[WEFT_TRANSPORT_HANDLE_BYTES],
                           void** receiver);
    /* Makes the sending end `*sender` to the receiver at `handle`. Further steps go on in later calls. */
    weftResult_t (*connect)(const weftTransportOptions_t* options,
                            const unsigned char handle[WEFT_TRANSPORT_HANDLE_BYTES], void** sender);
    /* Frees an end. Messages that were sent must still arrive; the peer may have closed its end. */
    void (*closeSender)(void* sender);
    void (*closeReceiver)(void* receiver);

    /* The next slot to fill, of slotBytes, the same one until it is published. weftInProgress until a credit returns. */
    weftResult_t (*acquire)(void* sender, weftTransportSlot_t* slot);
    /* Sends the acquired slot with the header `message`. */
    weftResult_t (*publish)(void* sender, const weftTransportMessage_t* message);
    /* Moves what is in flight. weftSuccess: nothing needs another call, and all posted memory may change. */
    weftResult_t (*progress)(void* sender);
    /* The next message, the same one until it is released. weftInProgress: it is not there yet. `slot`: where its bytes
     * are, at least message->bytes, visible to this thread and, in device memory, to kernels. `message`: its header. */
    weftResult_t (*receive)(void* receiver, weftTransportSlot_t* slot, weftTransportMessage_t* message);
    /* Returns the received slot as a credit. */
    weftResult_t (*release)(void* receiver);

    /* Optional. Sends message->bytes at `data` with the header `message`. weftInProgress: no credit yet. `data` may
     * change when the call returns. NULL: Weft copies into a slot. */
    weftResult_t (*send)(void* sender, const void* data, const weftTransportMessage_t* message);
    /* weftTransportPosts. The same without a copy: `data` changes only when sent() has counted the message, or after
     * closeSender. `memory`: the registration that holds `data`, or NULL without weftTransportRegisters. */
    weftResult_t (*post)(void* sender, const void* data, void* memory, const weftTransportMessage_t* message);
    /* weftTransportPosts. How many messages, from the first, no longer need the sender's memory. */
    uint64_t (*sent)(void* sender);
    /* weftTransportSleeps. Called before a sleep; a completion queue is armed here and polled once more. */
    void (*senderWakeups)(void* sender, weftTransportWakeups_t* wakeups);
    void (*receiverWakeups)(void* receiver, weftTransportWakeups_t* wakeups);
    /* weftTransportOffers. Offers `capacity` bytes at `target` for message number `message`. weftInProgress: declined, as
     * when it is on its way already. Otherwise receive() gives a slot at `target` if the message went there. The offer ends
     * with the message's release or with closeReceiver. `memory` as in post; without weftTransportRegisters `target` is
     * written inside receive() only. */
    weftResult_t (*offer)(void* receiver, void* target, size_t capacity, void* memory, uint64_t message);

    /* weftTransportRegisters. Registers `range` as `*memory`, until deregisterMemory. Any thread; may take long. */
    weftResult_t (*registerMemory)(const weftTransportMemory_t* range, void** memory);
    void (*deregisterMemory)(void* memory);

    /* weftTransportOneSided. Writes the bytes by which a peer addresses `memory`, at most WEFT_TRANSPORT_KEY_BYTES. */
    weftResult_t (*memoryKey)(void* memory, unsigned char* key, size_t* bytes);
    /* weftTransportOneSided. Makes `*remote` from a peer's key of `bytes` bytes; detach frees it.
     * Weft calls detach before closeSender. */
    weftResult_t (*attach)(void* sender, const unsigned char* key, size_t bytes, void** remote);
    void (*detach)(void* remote);
    /* weftTransportOneSided. Copy `bytes` from `data` to `offset` in the peer's range, or back. The peer takes no part.
     * weftInProgress: not posted yet. A message that is sent after a put arrives after the put's bytes. */
    weftResult_t (*put)(void* sender, const void* data, void* memory, void* remote, size_t offset, size_t bytes);
    weftResult_t (*get)(void* sender, void* data, void* memory, void* remote, size_t offset, size_t bytes);
    /* weftTransportOneSided. How many puts and gets, from the first, are complete at both ends. */
    uint64_t (*transferred)(void* sender);

    /* Optional, for weftTransportGivenSlots. As receive, for the message that is `ahead` places behind, from 1 to
     * depth - 1. release() returns the oldest message. NULL: Weft takes one message at a time. */
    weftResult_t (*lookAhead)(void* receiver, uint64_t ahead, weftTransportSlot_t* slot,
                              weftTransportMessage_t* message);
    /* Optional. Ends all offers after a failure; no message is received any more. When it returns, nothing
     * writes to offered memory. NULL: with weftTransportRegisters, Weft does not call offer. */
    void (*withdraw)(void* receiver);
} weftTransportPlugin_t;

#ifdef __cplusplus
}
#endif

#endif
