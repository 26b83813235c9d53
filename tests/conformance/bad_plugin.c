/* bad_plugin.c: the plugin of examples/transport_plugin with one defect, which BAD_PLUGIN names. */
#include "examples/transport_plugin/unix_sockets.c"

static int messages, copies;
__attribute__((visibility("default"))) int failing_allocations; /* for plugin_worker.cpp */
static void *getter, *attached; /* the end that gets by the peer's memory, and that memory until it is detached */

static weftResult_t receive_late_error(void* receiver, weftTransportSlot_t* slot, weftTransportMessage_t* message) {
    const weftResult_t result = receive(receiver, slot, message);
    return result == weftSuccess && ++messages > 5 ? fails(weftRemoteError, "the device vanished") : result;
}
static weftResult_t receive_never(void* receiver, weftTransportSlot_t* slot, weftTransportMessage_t* message) {
    (void)receiver, (void)slot, (void)message;
    return weftInProgress;
}
static weftResult_t receive_no_result(void* receiver, weftTransportSlot_t* slot, weftTransportMessage_t* message) {
    (void)receiver, (void)slot, (void)message;
    return (weftResult_t)999;
}
static weftResult_t receive_lie(void* receiver, weftTransportSlot_t* slot, weftTransportMessage_t* message) {
    const weftResult_t result = receive(receiver, slot, message);
    message->bytes += 1u << 30;
    return result;
}
static weftResult_t acquire_small(void* sender, weftTransportSlot_t* slot) {
    const weftResult_t result = acquire(sender, slot);
    slot->capacity = 1;
    return result;
}
static weftResult_t listen_fails(const weftTransportOptions_t* options, unsigned char* handle, void** receiver) {
    (void)options, (void)handle, (void)receiver;
    return fails(weftSystemError, "no port is left");
}
static weftResult_t connect_fails(const weftTransportOptions_t* options, const unsigned char* handle, void** sender) {
    (void)options, (void)handle, (void)sender;
    return weftRemoteError;
}
static weftResult_t init_fails(const weftTransportHost_t* host) {
    (void)host;
    return fails(weftSystemError, "no device was found");
}
/* The first get completes, the next ones never do. */
static weftResult_t get_once(void* sender, void* data, void* memory, void* remote, size_t offset, size_t bytes) {
    getter = sender;
    attached = remote;
    if (copies++ == 0) return get(sender, data, memory, remote, offset, bytes);
    failing_allocations = getenv("OUT_OF_MEMORY") != NULL;
    return weftSuccess;
}
static void detach_getter(void* remote) {
    if (remote == attached) attached = NULL;
    free(remote);
}
static void close_getter(void* sender) {
    if (sender == getter) printf("getter closed %s detach\n", attached ? "before" : "after");
    close_sender(sender);
}
static const char* no_error(void) { return NULL; }

__attribute__((constructor)) static void spoil(void) {
    const char* how = getenv("BAD_PLUGIN");
    weftTransportPlugin_t* plugin = &weftTransportPlugin;
    if (!how) return;
    if (strcmp(how, "abi") == 0) plugin->abi = 77;
    if (strcmp(how, "size") == 0) plugin->size = 64;
    if (strcmp(how, "short") == 0) {
        /* It ends before the optional functions. */
        plugin->size = offsetof(weftTransportPlugin_t, send);
        plugin->capabilities = weftTransportRemote;
    }
    if (strcmp(how, "first") == 0) plugin->size = offsetof(weftTransportPlugin_t, lookAhead);
    if (strcmp(how, "name") == 0) plugin->name = "tcp";
    if (strcmp(how, "missing") == 0) plugin->receive = NULL;
    if (strcmp(how, "promise") == 0) plugin->sent = NULL;
    if (strcmp(how, "init") == 0) plugin->init = init_fails;
    if (strcmp(how, "listen") == 0) plugin->listen = listen_fails;
    if (strcmp(how, "connect") == 0) plugin->connect = connect_fails;
    if (strcmp(how, "connect") == 0) plugin->error = no_error;
    if (strcmp(how, "late") == 0) plugin->receive = receive_late_error;
    if (strcmp(how, "never") == 0) plugin->receive = receive_never;
    if (strcmp(how, "result") == 0) plugin->receive = receive_no_result;
    if (strcmp(how, "lie") == 0) plugin->receive = receive_lie;
    if (strcmp(how, "get") == 0) plugin->get = get_once;
    if (strcmp(how, "get") == 0) plugin->detach = detach_getter;
    if (strcmp(how, "get") == 0) plugin->closeSender = close_getter;
    if (strcmp(how, "small") == 0) plugin->acquire = acquire_small;
}
