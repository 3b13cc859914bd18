/// The random numbers of NumPy's `default_rng(seed)`, so that a seed gives the same text as in Python.
///
/// References: O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
/// Generation" (PCG64, XSL-RR output); O'Neill 2015, "Developing a seed_seq Alternative", as NumPy's `SeedSequence` does it.
struct Random {
    private var state = Wide(high: 0, low: 0)
    private let increment: Wide

    init(seed: UInt64) {
        let words = Random.words(seed)
        increment = Wide(high: words[2] << 1 | words[3] >> 63, low: words[3] << 1 | 1)
        advance()
        state = state.plus(Wide(high: words[0], low: words[1]))
        advance()
    }

    /// The next number in [0, 1), with 53 random bits.
    mutating func next() -> Double {
        advance()
        let folded = state.high ^ state.low
        let count = state.high >> 58
        let rotated = folded >> count | folded << ((64 - count) & 63)
        return Double(rotated >> 11) / 9_007_199_254_740_992
    }

    private mutating func advance() {
        state = state.times(Wide(high: 0x2360_ED05_1FC6_5DA4, low: 0x4385_DF64_9FCC_F645)).plus(increment)
    }

    /// `SeedSequence(seed).generate_state(4, uint64)`.
    private static func words(_ seed: UInt64) -> [UInt64] {
        let pool = mixedPool(seed)
        var constant: UInt32 = 0x8B51_F9DD
        let halves: [UInt64] = (0..<8).map { index in
            let word = pool[index % 4] ^ constant
            constant = constant &* 0x58F3_8DED
            let mixed = word &* constant
            return UInt64(mixed ^ mixed >> 16)
        }
        return (0..<4).map { halves[2 * $0 + 1] << 32 | halves[2 * $0] }
    }

    private static func mixedPool(_ seed: UInt64) -> [UInt32] {
        let entropy: [UInt32] = [UInt32(truncatingIfNeeded: seed), UInt32(truncatingIfNeeded: seed >> 32), 0, 0]
        var constant: UInt32 = 0x43B0_D7E5
        func hashed(_ value: UInt32) -> UInt32 {
            let start = value ^ constant
            constant = constant &* 0x931E_8875
            let mixed = start &* constant
            return mixed ^ mixed >> 16
        }
        var pool = entropy.map { hashed($0) }
        for from in 0..<4 {
            for to in 0..<4 where to != from {
                let mixed = 0xCA01_F9DD &* pool[to] &- 0x4973_F715 &* hashed(pool[from])
                pool[to] = mixed ^ mixed >> 16
            }
        }
        return pool
    }
}

/// A number of 128 bits, modulo 2^128.
private struct Wide {
    let high: UInt64
    let low: UInt64

    func plus(_ other: Wide) -> Wide {
        let sum = low.addingReportingOverflow(other.low)
        return Wide(high: high &+ other.high &+ (sum.overflow ? 1 : 0), low: sum.partialValue)
    }

    func times(_ other: Wide) -> Wide {
        let product = low.multipliedFullWidth(by: other.low)
        return Wide(high: product.high &+ high &* other.low &+ low &* other.high, low: product.low)
    }
}
