import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Hive's metastore on PORT, of the jars that Spark brings, with a database of its own in DIRECTORY. */
public final class Metastore {
  public static void main(String[] arguments) throws Throwable {
    String directory = arguments[1];
    System.setProperty(
        "javax.jdo.option.ConnectionURL", "jdbc:derby:" + directory + "/database;create=true");
    System.setProperty("hive.metastore.warehouse.dir", "file://" + directory + "/warehouse");
    System.setProperty("hive.metastore.schema.verification", "false");
    System.setProperty("datanucleus.schema.autoCreateAll", "true");
    // What these would take by default is not among Spark's jars.
    System.setProperty("hive.async.log.enabled", "false");
    System.setProperty("datanucleus.connectionPoolingType", "HikariCP");
    // The tables of locks, which nothing else makes.
    TxnDbUtil.prepDb(new HiveConf());
    HiveMetaStore.main(new String[] {"-p", arguments[0]});
  }
}
