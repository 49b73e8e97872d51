// What reads .pt, .npy and .safetensors files, and the pickles inside the first: each is given every input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "formats.h"
#include "pickle.h"

namespace {

class Memory final : public unstarve::Source {
  public:
    Memory(const std::uint8_t *data, std::size_t size) : Source(size), data_(data) {}

  private:
    std::uint64_t fetch(std::uint64_t offset, std::uint8_t *to, std::uint64_t length) const override {
        std::memcpy(to, data_ + offset, length);
        return length;
    }
    const std::uint8_t *data_;
};

// An answer or a reason: other exceptions end the process, as does a number that says it lies outside the file.
template <typename Read>
void answered(Read read) {
    try {
        read();
    } catch (const unstarve::Unsupported &) {
    } catch (const unstarve::Damaged &) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const Memory memory(data, size);
    for (const auto format : {unstarve::Format::pt, unstarve::Format::npy, unstarve::Format::safetensors}) {
        answered([&] { unstarve::layout_of(format, memory); });
    }
    answered([&] { unstarve::read_pickle(data, size); });
    return 0;
}
