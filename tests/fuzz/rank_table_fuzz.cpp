// rank_table_fuzz.cpp: any bytes as the texts that hosts exchange at rendezvous are read to an end. A value that was
// read is the same when written and read again. One reader each: the common texts, the rank table, a
// host's entry, its place, and a report of later ranks.
//     build/tests/fuzz/rank_table_fuzz corpus tests/fuzz/rank_tables
#include <cstdint>
#include <cstdlib>

#include "src/control/check_in.hpp"

namespace {

using namespace weft::internal;

template <class T>
std::vector<std::byte> written(const T& value) {
    ByteWriter bytes;
    value.write(bytes);
    return bytes.bytes();
}

// A text that is too long is cut when it is written, so the second writing is held against the third.
template <class T>
T check(const uint8_t* data, size_t bytes) {
    ByteReader from(reinterpret_cast<const std::byte*>(data), bytes);
    T read = T::read(from);
    if (!from.ok()) return read;
    const std::vector<std::byte> once = written(read);
    ByteReader back(once.data(), once.size());
    const T again = T::read(back);
    if (!back.at_end() || written(again) != once) std::abort();
    return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    const AgreedTexts texts = check<AgreedTexts>(data, bytes);
    for (int host = -1; host <= int(texts.machine_of.size()); ++host) (void)texts.machine(host).text.size();
    const RankTable rank_table = check<RankTable>(data, bytes);
    for (size_t host = 0; host < rank_table.hosts.size(); ++host)
        if (rank_table.text(int(host)).empty()) std::abort();
    (void)check<Placement>(data, bytes);
    (void)check<JoinedReport>(data, bytes);
    const HostEntry host = check<HostEntry>(data, bytes);
    if (host.share.cores() < 1 || facts_of({host}).ranks_per_core < 1) std::abort();
    return 0;
}
