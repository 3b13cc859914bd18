plugins {
    id("com.android.library") version "8.13.0"
    id("org.jetbrains.kotlin.android") version "2.3.0"
    id("maven-publish")
}

group = "io.github.kerasformer"
version = "0.1.0"

android {
    namespace = "io.github.kerasformer"
    compileSdk = 36
    defaultConfig {
        minSdk = 24
        consumerProguardFiles("consumer-rules.pro")
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    publishing {
        singleVariant("release") { withSourcesJar() }
    }
}

kotlin {
    compilerOptions {
        jvmTarget.set(org.jetbrains.kotlin.gradle.dsl.JvmTarget.JVM_11)
        allWarningsAsErrors.set(true)
    }
}

dependencies {
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.10.2")
    // An app adds the engine of its bundles.
    compileOnly("com.google.ai.edge.litert:litert:2.3.0")
    compileOnly("com.microsoft.onnxruntime:onnxruntime-android:1.23.0")
}

publishing {
    publications {
        register<MavenPublication>("release") {
            artifactId = "kerasformer"
            afterEvaluate { from(components["release"]) }
            pom {
                name.set("Kerasformer")
                description.set("Runs exported Transformers on Android: text in, text out")
                licenses {
                    license {
                        name.set("Apache-2.0")
                        url.set("https://www.apache.org/licenses/LICENSE-2.0")
                    }
                }
            }
        }
    }
}
